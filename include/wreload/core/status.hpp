#pragma once
/// Errors are values: every call that can refuse returns a `status`.

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>

#include "status_text.hpp"

namespace wreload {

/// Why a call did not do what was asked. Codes up to `last_validation` are refusals: nothing was written, the update
/// goes on (but for `not_unanimous` from `update_set::publish`, which tells how a vote after the commit ended). Codes after it are execution errors: sticky, every later call of the update returns them.
enum class error_code : std::uint8_t {
  ok,
  bad_argument,    ///< a null pointer, a negative extent, a pattern that matches nothing
  bad_layout,      ///< what a layout and its extents ask for cannot be given (refused at `add`)
  bad_environment, ///< flush-to-zero, -ffinite-math-only: results could not be exact (refused at `seal`)
  bad_file,        ///< a file that is not what its format says
  unknown_name,    ///< no param of this model has such a source, and nobody declared it ignored or foreign
  wrong_dtype,     ///< a dtype that the layout does not declare
  wrong_shape,     ///< a shape, box or block grid that does not fit
  duplicate,       ///< a byte that has already arrived in this update, or two spellings of one tensor
  mixed_formats,   ///< one row in two formats (FP8 and BF16) in one update
  out_of_scope,    ///< a name that the update did not declare
  incomplete,      ///< `finish`: something declared has not arrived
  conflict,        ///< `finish`: two names of the same bytes brought different values
  wrong_state,     ///< no update open, another one open, not sealed, undefined and asked for a partial update
  wrong_base,      ///< the update was made for another version
  moved,           ///< a registered tensor is not where it was
  over_budget,     ///< no room aside for the tensor, in the memory that the update was given
  not_unanimous,   ///< other ranks did not all say yes
  corrupt,         ///< `prepare`: what arrived is not what the sender's digests say
  unsupported,     ///< a mode or feature that this build does not have
  last_validation = unsupported,
  execution_failed,  ///< a copy, launch or event failed
  out_of_memory,     ///< the device or the host has no memory left
  aborted,           ///< the update was aborted while the call ran
};

/// The result of a call.
///
///   param          the tensor or param concerned, as the caller or the checkpoint spells it
///   expected, got  what was asked for and what was found; these three read as strings
///   wrote_anything whether live bytes may have changed by this call
struct status {
  error_code code = error_code::ok;
  bool wrote_anything = false;
  status_text param = {};
  status_text expected = {};
  status_text got = {};

  [[nodiscard]] bool ok() const { return code == error_code::ok; }

  /// An execution error: every later call of the update returns it.
  [[nodiscard]] bool is_final() const { return code > error_code::last_validation; }

  /// One line: `layers.3.mlp.down_proj.weight_scale_inv: expected F32 [32, 112], got F32 [32, 56]`.
  [[nodiscard]] std::string message() const {
    if (ok()) return "ok";
    std::string text = param;
    if (!expected.empty()) text += (text.empty() ? "expected " : ": expected ") + expected;
    if (!got.empty()) text += expected.empty() ? (text.empty() ? got.str() : ": " + got) : ", got " + got;
    return text.empty() ? "refused" : text;
  }
};

/// A refusal, or an execution error where the code says so.
[[nodiscard]] inline status refuse(error_code code, std::string_view param, std::string expected, std::string got) {
  return {code, false, std::string(param), std::move(expected), std::move(got)};
}

}  // namespace wreload
