// Members are two.
// expect: PerShard: unknown member; use OfAllExperts or ExpectEqual
#include <wreload/layout/param_layout.hpp>
#include <wreload/layouts/names.hpp>
namespace wr = wreload;
namespace n = wreload::names;

#ifdef GOOD
using scales = wr::PerShard<wr::fp32, wr::OfAllExperts>;
#else
using scales = wr::PerShard<wr::fp32, wr::Retired>;
#endif
static_assert(!scales::expect_equal);
