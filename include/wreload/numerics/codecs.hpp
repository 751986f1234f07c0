#pragma once
/// All codecs: `codec<Format>` for every floating-point dtype up to fp32.

#include "bf16.hpp"
#include "codec.hpp"
#include "e2m1.hpp"
#include "e4m3.hpp"
#include "e5m2.hpp"
#include "fp16.hpp"
#include "fp32.hpp"
#include "ue8m0.hpp"
