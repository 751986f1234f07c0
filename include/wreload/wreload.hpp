#pragma once
/// wreload for the host: layouts, the host executor, models and updates. For CUDA include <wreload/wreload.cuh>; sources
/// (safetensors) and transports have headers of their own.

#include "layout/describe.hpp"
#include "layout/storage_plan.hpp"
#include "layouts/fp8_block_linear.hpp"
#include "layouts/fp8_block_moe.hpp"
#include "layouts/fp8_dequant_linear.hpp"
#include "layouts/fp8_dequant_moe.hpp"
#include "layouts/nvfp4_linear.hpp"
#include "layouts/nvfp4_moe.hpp"
#include "layouts/plain.hpp"
#include "update/model.hpp"
#include "update/model_ref.hpp"
#include "update/update_set.hpp"
#include "version.hpp"
