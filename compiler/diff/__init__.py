"""Two builds of a model, or a build and a reference, tensor by tensor: where do their numbers part?"""
