#pragma once
/// `Retired`, `Kept`, `Static`: who reads a param, and whether it must come with every complete update.

#include "policy.hpp"

namespace wreload {

/// Axis: lifetime. No kernel reads the param after `finish`; it stays registered, so that the next update can load it
/// again. Outside the comparison of cold starts, of the audit and of a dump. Its bytes keep to the laws all the same.
struct Retired {
  using axis = wreload::axis::lifetime;
  static constexpr bool retired = true, kept = false, fixed = false;
};

/// Axis: lifetime. Senders may leave the param out of a later complete update: the value of the last successful
/// `finish` then serves. A value that a failed update wrote does not: the repair has to bring it.
struct Kept {
  using axis = wreload::axis::lifetime;
  static constexpr bool retired = false, kept = true, fixed = false;
};

/// Axis: lifetime. The param has no checkpoint source: it is only audited, and saved over a sleep.
struct Static {
  using axis = wreload::axis::lifetime;
  static constexpr bool retired = false, kept = false, fixed = true;
};

namespace detail {
struct usual_lifetime {
  static constexpr bool retired = false, kept = false, fixed = false;
};
}  // namespace detail

}  // namespace wreload
