func.func public @main(%x: tensor<2x6x6x2xf32>, %w: tensor<3x3x2x4xf32>) -> (tensor<2x4xf32>, tensor<2x3x3x4xf32>) {
  %zero = stablehlo.constant dense<0.0> : tensor<f32>
  %least = stablehlo.constant dense<0xFF800000> : tensor<f32>
  %bias = stablehlo.constant dense<[0.5, -1.0, 2.0, 0.25]> : tensor<4xf32>
  %c = stablehlo.convolution(%x, %w) dim_numbers = [b, 0, 1, f]x[0, 1, i, o]->[b, 0, 1, f], window = {stride = [1, 1], pad = [[1, 1], [1, 1]]} {batch_group_count = 1 : i64, feature_group_count = 1 : i64} : (tensor<2x6x6x2xf32>, tensor<3x3x2x4xf32>) -> tensor<2x6x6x4xf32>
  %b = stablehlo.broadcast_in_dim %bias, dims = [3] : (tensor<4xf32>) -> tensor<2x6x6x4xf32>
  %s = stablehlo.add %c, %b : tensor<2x6x6x4xf32>
  %p = "stablehlo.reduce_window"(%s, %least) <{window_dimensions = array<i64: 1, 2, 2, 1>, window_strides = array<i64: 1, 2, 2, 1>}> ({
  ^bb0(%a: tensor<f32>, %d: tensor<f32>):
    %m = stablehlo.maximum %a, %d : tensor<f32>
    stablehlo.return %m : tensor<f32>
  }) : (tensor<2x6x6x4xf32>, tensor<f32>) -> tensor<2x3x3x4xf32>
  %r = stablehlo.reduce(%p init: %zero) applies stablehlo.add across dimensions = [1, 2] : (tensor<2x3x3x4xf32>, tensor<f32>) -> tensor<2x4xf32>
  %l = stablehlo.logistic %r : tensor<2x4xf32>
  return %l, %p : tensor<2x4xf32>, tensor<2x3x3x4xf32>
}
