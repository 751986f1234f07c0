#pragma once
// `--dump`: the runtime tensors that kernels read, as a safetensors file.

#include <string>
#include <vector>

#include <wreload/source/safetensors.hpp>

#include "engine.hpp"

namespace reload {

// Replaces `path` when the file is whole; a failure leaves it as it was. Retired tensors stay out.
template <wr::executor Executor>
wr::status dump(engine<Executor>& from, const std::string& path) {
  wr::model_snapshot copy;
  if (wr::status failed = from.model().snapshot(&copy); !failed.ok()) return within(path, failed);
  std::vector<wr::named_tensor> tensors;
  for (const wr::model_snapshot::tensor& kept : copy.tensors) {
    const auto& records = from.model().records();
    const wr::planned_param& param = wr::at(records.params, records.find_param(kept.name)).plan;
    const bool packed = param.spec.runtime == wr::dtype::fp4_e2m1x2;  // two values a byte: files have no name for it
    tensors.push_back({kept.name,
                       {.data = kept.bytes.data(),
                        .type = packed ? wr::dtype::u8 : param.spec.runtime,
                        .extents = param.extents}});
  }
  return wr::write_safetensors(path, tensors);
}

}  // namespace reload
