// From lists modules.
// expect: From: names no checkpoint module; list the modules in row order
#include <wreload/policy/names.hpp>
#include <wreload/layouts/names.hpp>
namespace wr = wreload;

#ifdef GOOD
using source = wr::From<wr::names::weight, wr::names::gate_proj>;
#else
using source = wr::From<wr::names::weight>;
#endif
static_assert(source::leaf == "weight");
