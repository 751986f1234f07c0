#pragma once
/// `admission`: what a load that was let in has claimed, and the jobs that will bring it.

#include <cstdint>
#include <vector>

#include "../core/box.hpp"
#include "../core/job.hpp"
#include "../layout/landing.hpp"

namespace wreload {

/// One rectangle of one landing that a load has claimed; kept so that a refused batch can give it back.
struct claim {
  std::int32_t source = no_index;
  std::int32_t landing = no_index;  ///< no_index: the claim is the source's spelling
  rect part = {};                   ///< checkpoint coordinates
  bool stored = false;              ///< in the stored format of a view that converts
  bool to_group = false;            ///< counted for the twin group, not for the landing
};

/// What a job lands or compares: a part of a landing, in checkpoint coordinates.
struct landed_part {
  std::int32_t landing = no_index;
  rect part = {};
  bool shared = false;         ///< the job also lands parts of other landings of the param
  bool is_transposed = false;  ///< the job's rows are the part's columns
};

/// What an admitted load has to do, and what it claimed. Owned by a lane; buffers are reused.
struct admission {
  std::vector<land_job> lands = {};
  std::vector<landed_part> landed = {};        ///< of each of `lands`
  std::vector<land_job> pads = {};             ///< after `lands`, over some of the same bytes
  std::vector<std::int32_t> padded = {};       ///< of each of `pads`: a landing of the param
  std::vector<land_job> compares = {};         ///< against bytes that a twin has brought
  std::vector<landed_part> compared = {};      ///< of each of `compares`
  std::vector<std::int32_t> compared_groups = {};  ///< twin group of each compare
  std::vector<claim> claims = {};
  std::int64_t needed_bytes = 0;

  void clear() {
    lands.clear();
    landed.clear();
    pads.clear();
    padded.clear();
    compares.clear();
    compared.clear();
    compared_groups.clear();
    claims.clear();
    needed_bytes = 0;
  }
};

}  // namespace wreload
