func.func private @twice(%x: tensor<?x4xf32>) -> tensor<?x4xf32> {
  %y = stablehlo.add %x, %x : tensor<?x4xf32>
  return %y : tensor<?x4xf32>
}
func.func public @main(%x: tensor<?x4xf32>, %y: tensor<?x4xf32>, %n: tensor<3x1xi64>) -> (tensor<?x4xf32>, tensor<3x4xf32>, tensor<?x?xf32>) {
  %one = stablehlo.constant dense<1> : tensor<i32>
  %i = stablehlo.get_dimension_size %x, dim = 0 : (tensor<?x4xf32>) -> tensor<i32>
  %j = stablehlo.get_dimension_size %y, dim = 0 : (tensor<?x4xf32>) -> tensor<i32>
  %p = stablehlo.add %i, %one : tensor<i32>
  %k = stablehlo.compare EQ, %j, %p : (tensor<i32>, tensor<i32>) -> tensor<i1>
  stablehlo.custom_call @shape_assertion(%k, %i) {error_message = "{0} rows", has_side_effect = true} : (tensor<i1>, tensor<i32>) -> ()
  %t = func.call @twice(%x) : (tensor<?x4xf32>) -> tensor<?x4xf32>
  %s = "stablehlo.sort"(%t) <{dimension = 1 : i64, is_stable = true}> ({
  ^bb0(%a: tensor<f32>, %b: tensor<f32>):
    %c = stablehlo.compare LT, %a, %b, TOTALORDER : (tensor<f32>, tensor<f32>) -> tensor<i1>
    stablehlo.return %c : tensor<i1>
  }) : (tensor<?x4xf32>) -> tensor<?x4xf32>
  %g = "stablehlo.gather"(%y, %n) <{dimension_numbers = #stablehlo.gather<offset_dims = [1], collapsed_slice_dims = [0], start_index_map = [0], index_vector_dim = 1>, slice_sizes = array<i64: 1, 4>}> : (tensor<?x4xf32>, tensor<3x1xi64>) -> tensor<3x4xf32>
  %d = stablehlo.dot_general %x, %y, contracting_dims = [1] x [1] : (tensor<?x4xf32>, tensor<?x4xf32>) -> tensor<?x?xf32>
  return %s, %g, %d : tensor<?x4xf32>, tensor<3x4xf32>, tensor<?x?xf32>
}
