#pragma once
/// Element types: a run-time `dtype`, one tag type per dtype for template lists, and small sets of dtypes.

#include <concepts>
#include <cstdint>
#include <string>
#include <string_view>

#include "config.hpp"

namespace wreload {

/// An element type as stored in a file or in a runtime tensor. `none` marks an absent choice.
enum class dtype : std::uint8_t {
  none,
  boolean,
  u8,
  i8,
  u16,
  i16,
  u32,
  i32,
  u64,
  i64,
  fp16,
  bf16,
  fp32,
  fp64,
  fp8_e4m3,    ///< 1-4-3, bias 7, no infinity, NaN 0x7F and 0xFF ("fn")
  fp8_e5m2,    ///< 1-5-2, bias 15, IEEE-like
  fp8_ue8m0,   ///< unsigned power of two, 2^(byte - 127), 255 is NaN
  fp4_e2m1x2,  ///< two e2m1 values a byte, element 2j in the low nibble; one *element* here is one byte
};

inline constexpr int dtype_count = 18;

/// Bytes of one element.
WRELOAD_HOST_DEVICE constexpr std::int64_t bytes_of(dtype type) {
  switch (type) {
    case dtype::none: return 0;
    case dtype::boolean:
    case dtype::u8:
    case dtype::i8:
    case dtype::fp8_e4m3:
    case dtype::fp8_e5m2:
    case dtype::fp8_ue8m0:
    case dtype::fp4_e2m1x2: return 1;
    case dtype::u16:
    case dtype::i16:
    case dtype::fp16:
    case dtype::bf16: return 2;
    case dtype::u32:
    case dtype::i32:
    case dtype::fp32: return 4;
    case dtype::u64:
    case dtype::i64:
    case dtype::fp64: return 8;
  }
  return 0;
}

/// The spelling that safetensors files use (`F8_E4M3`, `BF16`, …); packed fp4 is stored there as `U8`.
constexpr std::string_view name_of(dtype type) {
  switch (type) {
    case dtype::none: return "none";
    case dtype::boolean: return "BOOL";
    case dtype::u8: return "U8";
    case dtype::i8: return "I8";
    case dtype::u16: return "U16";
    case dtype::i16: return "I16";
    case dtype::u32: return "U32";
    case dtype::i32: return "I32";
    case dtype::u64: return "U64";
    case dtype::i64: return "I64";
    case dtype::fp16: return "F16";
    case dtype::bf16: return "BF16";
    case dtype::fp32: return "F32";
    case dtype::fp64: return "F64";
    case dtype::fp8_e4m3: return "F8_E4M3";
    case dtype::fp8_e5m2: return "F8_E5M2";
    case dtype::fp8_ue8m0: return "F8_E8M0";
    case dtype::fp4_e2m1x2: return "F4_E2M1X2";
  }
  return "?";
}

/// Tag types: what a layout writes where a dtype is a template argument. `id` is the run-time value.
struct boolean { static constexpr dtype id = dtype::boolean; };
struct u8 { static constexpr dtype id = dtype::u8; };
struct i8 { static constexpr dtype id = dtype::i8; };
struct u16 { static constexpr dtype id = dtype::u16; };
struct i16 { static constexpr dtype id = dtype::i16; };
struct u32 { static constexpr dtype id = dtype::u32; };
struct i32 { static constexpr dtype id = dtype::i32; };
struct u64 { static constexpr dtype id = dtype::u64; };
struct i64 { static constexpr dtype id = dtype::i64; };
struct fp16 { static constexpr dtype id = dtype::fp16; };
struct bf16 { static constexpr dtype id = dtype::bf16; };
struct fp32 { static constexpr dtype id = dtype::fp32; };
struct fp64 { static constexpr dtype id = dtype::fp64; };
struct fp8_e4m3 { static constexpr dtype id = dtype::fp8_e4m3; };
struct fp8_e5m2 { static constexpr dtype id = dtype::fp8_e5m2; };
struct fp8_ue8m0 { static constexpr dtype id = dtype::fp8_ue8m0; };
struct fp4_e2m1x2 { static constexpr dtype id = dtype::fp4_e2m1x2; };

/// One of the tags above (or an engine's own type with the same static `id`).
template <class Tag>
concept dtype_tag = requires {
  { Tag::id } -> std::same_as<const dtype&>;
};

/// A set of dtypes, for what a param accepts.
class dtype_set {
 public:
  constexpr dtype_set() = default;
  constexpr dtype_set(dtype type) : bits_(bit(type)) {}  // NOLINT: a single dtype is a set

  constexpr bool contains(dtype type) const { return type != dtype::none && (bits_ & bit(type)) != 0; }
  constexpr dtype_set& operator|=(dtype_set other) {
    bits_ |= other.bits_;
    return *this;
  }
  friend constexpr dtype_set operator|(dtype_set a, dtype_set b) { return a |= b; }
  friend constexpr dtype_set operator&(dtype_set a, dtype_set b) {
    a.bits_ &= b.bits_;
    return a;
  }
  friend constexpr bool operator==(dtype_set, dtype_set) = default;

 private:
  static constexpr std::uint32_t bit(dtype type) {
    return type == dtype::none ? 0U : 1U << static_cast<unsigned>(type);
  }
  std::uint32_t bits_ = 0;
};

/// `F8_E4M3 or BF16`, for messages.
inline std::string to_string(dtype_set set) {
  std::string text;
  for (int i = 1; i < dtype_count; ++i) {
    const auto type = static_cast<dtype>(i);
    if (!set.contains(type)) continue;
    if (!text.empty()) text += " or ";
    text += name_of(type);
  }
  return text;
}

}  // namespace wreload
