#pragma once
// The job on a GPU, behind plain functions: cuda.cu is the only part of the tool that needs a CUDA compiler.

#include <string>

#include "options.hpp"
#include "summary.hpp"

namespace reload {

// Whether the current CUDA device can run this build; what it is, or why it cannot, in words.
bool find_cuda(std::string& words);

// `run` on the current CUDA device.
wr::status run_on_cuda(const options& asked, summary& done);

}  // namespace reload
