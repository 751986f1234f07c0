#pragma once
/// The names of the ready-made layouts, as tags.

#include <string_view>

namespace wreload::names {

struct weight { static constexpr std::string_view name = "weight"; };
struct weight_packed { static constexpr std::string_view name = "weight_packed"; };
struct weight_scale { static constexpr std::string_view name = "weight_scale"; };
struct weight_scale_inv { static constexpr std::string_view name = "weight_scale_inv"; };
struct weight_scale_inv_mn_major { static constexpr std::string_view name = "weight_scale_inv_mn_major"; };
struct weight_scale_2 { static constexpr std::string_view name = "weight_scale_2"; };
struct weight_scale_interleaved { static constexpr std::string_view name = "weight_scale_interleaved"; };
struct weight_global_scale { static constexpr std::string_view name = "weight_global_scale"; };
struct input_scale { static constexpr std::string_view name = "input_scale"; };
struct input_scale_inv { static constexpr std::string_view name = "input_scale_inv"; };
struct input_global_scale { static constexpr std::string_view name = "input_global_scale"; };
struct alpha { static constexpr std::string_view name = "alpha"; };
struct gate_proj { static constexpr std::string_view name = "gate_proj"; };
struct up_proj { static constexpr std::string_view name = "up_proj"; };
struct down_proj { static constexpr std::string_view name = "down_proj"; };
struct w13_weight { static constexpr std::string_view name = "w13_weight"; };
struct w13_weight_scale { static constexpr std::string_view name = "w13_weight_scale"; };
struct w13_weight_scale_inv { static constexpr std::string_view name = "w13_weight_scale_inv"; };
struct w13_weight_scale_inv_mn_major { static constexpr std::string_view name = "w13_weight_scale_inv_mn_major"; };
struct w13_weight_scale_2 { static constexpr std::string_view name = "w13_weight_scale_2"; };
struct w13_input_scale { static constexpr std::string_view name = "w13_input_scale"; };
struct w13_input_scale_quant { static constexpr std::string_view name = "w13_input_scale_quant"; };
struct w13_blockscale_swizzled { static constexpr std::string_view name = "w13_blockscale_swizzled"; };
struct g1_alphas { static constexpr std::string_view name = "g1_alphas"; };
struct g1_alphas_up { static constexpr std::string_view name = "g1_alphas_up"; };
struct g1_scale_c { static constexpr std::string_view name = "g1_scale_c"; };
struct w2_weight { static constexpr std::string_view name = "w2_weight"; };
struct w2_weight_scale { static constexpr std::string_view name = "w2_weight_scale"; };
struct w2_weight_scale_inv { static constexpr std::string_view name = "w2_weight_scale_inv"; };
struct w2_weight_scale_inv_mn_major { static constexpr std::string_view name = "w2_weight_scale_inv_mn_major"; };
struct w2_weight_scale_2 { static constexpr std::string_view name = "w2_weight_scale_2"; };
struct w2_input_scale { static constexpr std::string_view name = "w2_input_scale"; };
struct w2_input_scale_quant { static constexpr std::string_view name = "w2_input_scale_quant"; };
struct w2_blockscale_swizzled { static constexpr std::string_view name = "w2_blockscale_swizzled"; };
struct g2_alphas { static constexpr std::string_view name = "g2_alphas"; };

}  // namespace wreload::names
