// FP8 becomes a float of 16 or 32 bits, nothing else.
// expect: StorageView: FP8 converts to bf16, fp16 or fp32; name one of them in Over<...>
#include <wreload/policy/storage_view.hpp>
namespace wr = wreload;

#ifdef GOOD
using view = wr::StorageView<wr::fp8_e4m3, wr::Over<wr::fp16>>;
#else
using view = wr::StorageView<wr::fp8_e4m3, wr::Over<wr::u16>>;
#endif
static_assert(view::converts);
