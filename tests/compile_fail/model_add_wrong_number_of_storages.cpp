// One storage per param of the layout.
// expect: model::add: one storage per param; pass a pointer (or storage) for each Param of the layout
#include <wreload/layouts/fp8_dequant_linear.hpp>
#include <wreload/update/model.hpp>
namespace wr = wreload;

wr::status register_layer(wr::model<>& model, void* weight, [[maybe_unused]] void* scale) {
  const wr::extents sizes = wr::extents::matrix("layer", 128, 128);
#ifdef GOOD
  return model.add<wr::Fp8DequantLinear>("layer", sizes, weight, scale);
#else
  return model.add<wr::Fp8DequantLinear>("layer", sizes, weight);
#endif
}
