// A row of the view lies inside the row of the storage.
// expect: StorageView: the stored dtype is wider than its storage; widen Over<...> or store a narrower dtype
#include <wreload/policy/storage_view.hpp>
namespace wr = wreload;

#ifdef GOOD
using view = wr::StorageView<wr::fp8_e4m3, wr::Over<wr::bf16>>;
#else
using view = wr::StorageView<wr::bf16, wr::Over<wr::fp8_e4m3>>;
#endif
static_assert(view::converts);
