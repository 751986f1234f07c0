#pragma once
/// `host_table`: calls that are kept, to be made again with other sources.

#include <cstdint>
#include <vector>

#include "../core/job.hpp"

namespace wreload {

/// What calls on a lane did, in their order.
struct host_table {
  /// One of the lists is not empty.
  struct call {
    dequant_key key = {};
    std::vector<land_job> lands = {};
    std::vector<land_job> compares = {};
    std::vector<std::int32_t> flags = {};
    std::vector<dequant_job> dequants = {};
    std::vector<combine_job> combines = {};
  };
  std::vector<call> calls = {};
  bool whole = true;
  bool empty() const { return calls.empty(); }
};

}  // namespace wreload
