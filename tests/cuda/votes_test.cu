// Votes of ranks on GPUs: rank r uses GPU r % count.
#include "../update/votes_suite.hpp"
#include "test_device.cuh"

namespace wreload::test {

TEST_CASE("cuda: ranks of the votes suite have GPUs of their own") {
  const int count = test_device<cuda_executor>::count();
  if (count < 2) {
    MESSAGE("skipped in part: ranks on several GPUs need two of them, here is " << count << "; all ranks share it");
    return;
  }
  for (int rank = 0; rank < 2; ++rank) {
    voting_rank<cuda_executor> made(rank);
    for (std::size_t which = 0; which < 2; ++which) {
      CHECK(made.engine(which).model().executor().device() == rank % count);
      cudaPointerAttributes where = {};
      WRELOAD_TEST_CUDA(cudaPointerGetAttributes(&where, made.engine(which).model().params()[0].data));
      CHECK(where.device == rank % count);
    }
  }
}

TEST_CASE_TEMPLATE_INVOKE(votes_yes, cuda_executor);
TEST_CASE_TEMPLATE_INVOKE(votes_refused, cuda_executor);
TEST_CASE_TEMPLATE_INVOKE(votes_unknown, cuda_executor);
TEST_CASE_TEMPLATE_INVOKE(votes_deadline, cuda_executor);
TEST_CASE_TEMPLATE_INVOKE(votes_dead_early, cuda_executor);
TEST_CASE_TEMPLATE_INVOKE(votes_doubt, cuda_executor);
TEST_CASE_TEMPLATE_INVOKE(votes_dead_late, cuda_executor);
TEST_CASE_TEMPLATE_INVOKE(votes_failed, cuda_executor);

}  // namespace wreload::test
