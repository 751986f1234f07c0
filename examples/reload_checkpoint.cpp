// Loads a checkpoint cold, reloads others in place, and proves that what serves equals a fresh cold start.
//
//   reload_checkpoint A B A --fuse qkv=q_proj,k_proj,v_proj --order shuffle:1 --bucket 1000000
//
// Exit 0: all equal. 1: the audit found a difference. 2: bad input or usage, one line on stderr.

#include <cstdio>
#include <exception>
#include <string>

#include "reload_checkpoint/command_line.hpp"
#include "reload_checkpoint/cuda.hpp"
#include "reload_checkpoint/output.hpp"
#include "reload_checkpoint/run.hpp"

namespace reload {

#ifndef WRELOAD_EXAMPLE_CUDA
bool find_cuda(std::string& words) {
  words = "this reload_checkpoint was built without CUDA";
  return false;
}
wr::status run_on_cuda(const options&, summary&) { return {}; }  // not called: `find_cuda` found none
#endif

// Runs on the device that was asked for; `auto` is the GPU where there is one.
int run_and_print(const options& asked) {
  summary done;
  std::string cuda;
  const bool on_cuda = asked.device != "host" && find_cuda(cuda);
  if (asked.device == "cuda" && !on_cuda) return finish(asked, done, "--device cuda: expected a CUDA device; " + cuda);
  if (asked.device != "host") done.device = on_cuda ? cuda : "host (" + cuda + ")";
  const wr::status result = on_cuda ? run_on_cuda(asked, done) : run<wr::host_executor>(asked, done);
  return finish(asked, done, result.ok() ? std::string() : result.message());
}

}  // namespace reload

int main(int argc, char** argv) {
  reload::options asked;
  try {
    const reload::command_line line = reload::read_command_line(argc, argv, asked);
    if (line.exit) return *line.exit;
    if (!line.error.empty()) return reload::finish(asked, {}, line.error);
    return reload::run_and_print(asked);
  } catch (const std::exception& error) {  // host allocation
    std::fprintf(stderr, "reload_checkpoint: %s\n", error.what());
    return 2;
  }
}
