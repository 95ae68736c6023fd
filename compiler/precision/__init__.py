"""Lower precision: policies that say what is kept in which type, and what is made of a model by them."""
