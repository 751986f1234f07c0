#pragma once
/// `on_use`: why some classes here are templates without a visible parameter.

namespace wreload {

/// Host code in a header is compiled by every file that includes it, unless it is a template: then only by files that
/// use it. Classes with long bodies take this parameter for that reason alone; `using registry = basic_registry<>;`.
struct on_use {};

}  // namespace wreload
