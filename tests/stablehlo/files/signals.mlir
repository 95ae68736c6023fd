func.func public @main(%x: tensor<2x8xf32>, %n: tensor<i32>) -> (tensor<2x8xf32>, tensor<2x5xf32>, tensor<i32>) {
  %zero = stablehlo.constant dense<0> : tensor<i32>
  %one = stablehlo.constant dense<1> : tensor<i32>
  %phase = stablehlo.constant dense<[(1.0, 0.5), (2.0, -1.0), (0.0, 1.0), (1.0, 1.0), (3.0, 0.0)]> : tensor<5xcomplex<f32>>
  %h = stablehlo.fft %x, type = RFFT, length = [8] : (tensor<2x8xf32>) -> tensor<2x5xcomplex<f32>>
  %b = stablehlo.broadcast_in_dim %phase, dims = [1] : (tensor<5xcomplex<f32>>) -> tensor<2x5xcomplex<f32>>
  %m = stablehlo.multiply %h, %b : tensor<2x5xcomplex<f32>>
  %l:2 = stablehlo.while(%i = %zero, %z = %m) : tensor<i32>, tensor<2x5xcomplex<f32>>
  cond {
    %c = stablehlo.compare LT, %i, %n : (tensor<i32>, tensor<i32>) -> tensor<i1>
    stablehlo.return %c : tensor<i1>
  } do {
    %j = stablehlo.add %i, %one : tensor<i32>
    %w = stablehlo.multiply %z, %b : tensor<2x5xcomplex<f32>>
    stablehlo.return %j, %w : tensor<i32>, tensor<2x5xcomplex<f32>>
  }
  %a = stablehlo.abs %l#1 : (tensor<2x5xcomplex<f32>>) -> tensor<2x5xf32>
  %f = stablehlo.fft %l#1, type = IRFFT, length = [8] : (tensor<2x5xcomplex<f32>>) -> tensor<2x8xf32>
  %t = stablehlo.tuple %f, %a : tuple<tensor<2x8xf32>, tensor<2x5xf32>>
  %u = stablehlo.get_tuple_element %t[0] : (tuple<tensor<2x8xf32>, tensor<2x5xf32>>) -> tensor<2x8xf32>
  %g = "stablehlo.map"(%u) <{dimensions = array<i64: 0, 1>}> ({
  ^bb0(%v: tensor<f32>):
    %s = stablehlo.tanh %v : tensor<f32>
    stablehlo.return %s : tensor<f32>
  }) : (tensor<2x8xf32>) -> tensor<2x8xf32>
  return %g, %a, %l#0 : tensor<2x8xf32>, tensor<2x5xf32>, tensor<i32>
}
