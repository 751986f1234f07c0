#pragma once
/// `update_set`: the updates of a target and a draft model on every rank, or on none. Ranks are threads; votes travel
/// through memory.

#include <chrono>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include <wreload/update/update_set.hpp>

#include "mixed_engine.hpp"

namespace wreload::test {

/// Votes of all ranks, round by round. A rank that has left without a vote is `unknown` to the others.
class vote_gather {
 public:
  explicit vote_gather(int ranks) : rounds_of_(static_cast<std::size_t>(ranks)), left_(static_cast<std::size_t>(ranks)) {}

  /// Waits for the votes of this rank's next round.
  vote exchange(int rank, vote own) {
    std::unique_lock lock(lock_);
    std::vector<vote>& mine = rounds_of_[static_cast<std::size_t>(rank)];
    const std::size_t round = mine.size();
    mine.push_back(own);
    changed_.notify_all();
    changed_.wait(lock, [&] {
      for (std::size_t r = 0; r < rounds_of_.size(); ++r)
        if (rounds_of_[r].size() <= round && !left_[r]) return false;
      return true;
    });
    std::vector<vote> votes;
    for (const std::vector<vote>& each : rounds_of_) votes.push_back(each.size() > round ? each[round] : vote::unknown);
    return unanimous(votes);
  }
  void leave(int rank) {
    const std::lock_guard guard(lock_);
    left_[static_cast<std::size_t>(rank)] = true;
    changed_.notify_all();
  }

 private:
  std::mutex lock_ = {};
  std::condition_variable changed_ = {};
  std::vector<std::vector<vote>> rounds_of_;
  std::vector<bool> left_;
};

/// How the updates of all ranks are started.
struct voted_case {
  update_mode mode = update_mode::staged;
  undo_mode undo = undo_mode::none;

  std::string name() const { return std::string(name_of(mode)) + (undo == undo_mode::host ? ", undo" : ""); }
  /// Whether an abort leaves everything as it was.
  bool is_atomic(bool committed) const {
    return mode == update_mode::swap || undo == undo_mode::host || (mode == update_mode::staged && !committed);
  }
};
inline constexpr voted_case voted_cases[] = {{update_mode::staged, undo_mode::none},
                                             {update_mode::staged, undo_mode::host},
                                             {update_mode::swap, undo_mode::none},
                                             {update_mode::direct, undo_mode::none},
                                             {update_mode::direct, undo_mode::host}};

/// Where a rank's thread ends, and its handles with it.
enum class rank_death { never, before_prepare, after_prepare, after_commit, before_publish };

/// What goes wrong on one rank.
struct rank_fate {
  rank_death dies = rank_death::never;
  bool refuses = false;              ///< a tensor of the draft is left out
  std::string_view fails = {};       ///< the operation that fails in `commit`
  bool fails_draft = false;          ///< … of the draft; else of the target
};

/// One rank: two models that serve A, and a set of their updates to B.
template <class Executor>
class voting_rank {
 public:
  using engine_type = mixed_engine<Executor>;

  explicit voting_rank(int index) : index_(index) {
    for (std::unique_ptr<engine_type>& each : engines_) {
      each = engine_type::make(index);
      each->reload(engine_type::checkpoint_of(seed_of(each)));
      before_.push_back(each->image());
    }
  }

  /// For the calling thread.
  void select() const { test_device<Executor>::select(index_ % test_device<Executor>::count()); }

  status start(const voted_case& how, double deadline_seconds = 0) {
    set_.emplace(deadline_seconds);
    handles_.clear();
    for (std::unique_ptr<engine_type>& each : engines_) {
      const std::vector<stream_ref> readers = {each->memory().stream(2)};
      start_options options{.mode = how.mode, .stream = each->memory().stream(0), .readers = readers, .undo = how.undo};
      if (how.mode == update_mode::staged) options.staging.budget_bytes = 16 << 10;
      status refused;
      update_ref opened = model_ref(each->model()).start(options, &refused);
      if (!refused.ok()) return refused;
      handles_.push_back(&set_->add(std::move(opened)));
    }
    return {};
  }
  /// All of B, but for one tensor of the draft where it `omits`.
  status load(bool omits = false) {
    for (std::size_t i = 0; i < engines_.size(); ++i) {
      reference::checkpoint next = next_of(i);
      if (omits && i == 1) next.erase("norm.weight");
      if (status failed = engines_[i]->deliver_whole(*handles_[i], next); !failed.ok()) return failed;
    }
    return {};
  }
  status load_omitted() {
    const auto next = next_of(1);
    const piece one{.name = "norm.weight", .tensor = engines_[1]->place(next.at("norm.weight"))};
    return handles_[1]->load({&one, 1});
  }

  update_set& set() { return *set_; }
  void drop() { set_.reset(); }
  engine_type& engine(std::size_t which) { return *engines_[which]; }

  /// The protocol as a caller follows it, up to where this rank's fate ends it. `prepared`, `committed`, `published`: what
  /// the calls said.
  void run(vote_gather& votes, const voted_case& how, const rank_fate& fate) {
    select();
    const auto dies = [&](rank_death here) {
      if (fate.dies != here) return false;
      drop();
      votes.leave(index_);
      return true;
    };
    must(start(how));
    must(load(fate.refuses));
    if (dies(rank_death::before_prepare)) return;
    prepared = set_->prepare();
    first = votes.exchange(index_, update_set::vote_of(prepared));
    if (dies(rank_death::after_prepare)) return;
    if (!fate.fails.empty()) engines_[fate.fails_draft ? 1 : 0]->plan.arm_next(fate.fails);
    committed = set_->commit(first);
    if (!fate.fails.empty()) engines_[fate.fails_draft ? 1 : 0]->plan.disarm();
    if (first != vote::yes) return;  // the caller decides
    if (dies(rank_death::after_commit)) return;
    second = votes.exchange(index_, update_set::vote_of(committed));
    if (dies(rank_death::before_publish)) return;
    published = set_->publish(second);
  }

  void demand_state(model_state wanted) {
    for (const auto& each : engines_)
      demand(each->model().state() == wanted, "rank " + std::to_string(index_) + " is " + std::string(name_of(each->model().state())) +
                                                  ", not " + std::string(name_of(wanted)));
  }
  void demand_as_before() {
    select();
    demand_state(model_state::live);
    for (std::size_t i = 0; i < engines_.size(); ++i) {
      demand(engines_[i]->model().version() == 1, "the version changed");
      demand(engines_[i]->image() == before_[i], "bytes are not as before");
    }
  }
  void demand_as_before_or_undefined() {
    for (std::size_t i = 0; i < engines_.size(); ++i) {
      const model_state state = engines_[i]->model().state();
      demand(state == model_state::undefined || (state == model_state::live && engines_[i]->image() == before_[i]),
             "neither as before nor undefined");
      demand(engines_[i]->model().version() == 1, "the version changed");
    }
  }
  /// After an abort.
  void demand_aborted(const voted_case& how, bool was_committed) {
    select();
    if (how.is_atomic(was_committed)) return demand_as_before();
    demand_state(model_state::undefined);
    demand_no_partial();
  }
  void demand_published() {
    select();
    demand_state(model_state::live);
    for (std::size_t i = 0; i < engines_.size(); ++i) {
      demand(engines_[i]->model().version() == 2, "not the next version");
      const std::string found = engines_[i]->difference(next_of(i));
      demand(found.empty(), found);
    }
  }
  void demand_no_partial() {
    for (const auto& each : engines_) {
      status refused;
      const std::string_view names[] = {"norm.weight"};
      demand(!each->model().start({.scope = update_scope::partial(names)}, &refused).is_open() && refused.code == error_code::wrong_state,
             "a partial update was accepted");
    }
  }
  /// A complete update afterwards.
  void demand_repaired() {
    select();
    drop();
    for (const auto& each : engines_) {
      const auto last = engine_type::checkpoint_of(4);
      each->reload(last);
      demand(each->model().state() == model_state::live, "a repair does not help");
      const std::string found = each->difference(last) + each->disturbed();
      demand(found.empty(), found);
    }
  }

  status prepared = {}, committed = {}, published = {};
  vote first = vote::unknown, second = vote::unknown;

 private:
  std::uint64_t seed_of(const std::unique_ptr<engine_type>& each) const { return &each == &engines_[0] ? 0 : 1; }
  static reference::checkpoint next_of(std::size_t which) { return engine_type::checkpoint_of(2 + which); }

  int index_;
  std::array<std::unique_ptr<engine_type>, 2> engines_ = {};  ///< target and draft
  std::vector<std::vector<std::byte>> before_ = {};
  std::optional<update_set> set_ = {};
  std::vector<update_ref*> handles_ = {};
};

/// All ranks, each on a thread of its own.
template <class Executor>
struct voting_ranks {
  std::vector<std::unique_ptr<voting_rank<Executor>>> all = {};
  std::unique_ptr<vote_gather> votes = {};

  explicit voting_ranks(int count) {
    for (int r = 0; r < count; ++r) all.push_back(std::make_unique<voting_rank<Executor>>(r));
    votes = std::make_unique<vote_gather>(count);
  }

  /// Rank 1 has the fate; the others none. Throws what a thread threw.
  void run(const voted_case& how, const rank_fate& fate) {
    std::vector<std::string> thrown(all.size());
    std::vector<std::thread> threads;
    for (std::size_t r = 0; r < all.size(); ++r)
      threads.emplace_back([&, r] {
        try {
          all[r]->run(*votes, how, r == 1 ? fate : rank_fate{});
        } catch (const std::exception& error) {
          thrown[r] = "rank " + std::to_string(r) + ": " + error.what();
          votes->leave(static_cast<int>(r));
        }
      });
    for (std::thread& each : threads) each.join();
    for (const std::string& each : thrown) demand(each.empty(), each);
  }

  /// Calls `check(rank)` for every rank but rank 1.
  template <class Check>
  void survivors(Check&& check) {
    for (std::size_t r = 0; r < all.size(); ++r)
      if (r != 1) {
        all[r]->select();
        check(*all[r]);
      }
  }
  voting_rank<Executor>& fated() {
    all[1]->select();
    return *all[1];
  }
};

TEST_CASE("unanimous: yes of all, no of one, else unknown") {
  CHECK(unanimous({}) == vote::yes);
  for (const vote a : {vote::yes, vote::no, vote::unknown})
    for (const vote b : {vote::yes, vote::no, vote::unknown})
      for (const vote c : {vote::yes, vote::no, vote::unknown}) {
        const vote votes[] = {a, b, c};
        const bool any_no = a == vote::no || b == vote::no || c == vote::no;
        const bool all_yes = a == vote::yes && b == vote::yes && c == vote::yes;
        CHECK(unanimous(votes) == (any_no ? vote::no : all_yes ? vote::yes : vote::unknown));
      }
}

TEST_CASE_TEMPLATE_DEFINE("votes: all yes, and every rank publishes both models", Executor, votes_yes) {
  std::int64_t turn = 0;
  for (const voted_case& how : voted_cases)
    for (const int count : {1, 2, 4}) {
      if (turn++ % test_sparsity() != 0) continue;
      INFO(how.name());
      voting_ranks<Executor> ranks(count);
      ranks.run(how, {});
      for (const auto& each : ranks.all) {
        must(each->published);
        each->demand_published();
        check_refused(each->set().publish(vote::yes), error_code::wrong_state);  // once
        must(each->set().abort());                                               // too late, and harmless
        each->demand_published();
      }
    }
}

TEST_CASE_TEMPLATE_DEFINE("votes: one prepare is refused, and nobody writes", Executor, votes_refused) {
  for (const voted_case& how : voted_cases) {
    INFO(how.name());
    voting_ranks<Executor> ranks(3);
    ranks.run(how, {.refuses = true});
    CHECK(ranks.fated().prepared.code == error_code::incomplete);
    for (const auto& each : ranks.all) {
      each->select();
      CHECK(each->first == vote::no);
      check_refused(each->committed, error_code::not_unanimous);
      if (how.mode != update_mode::direct) each->demand_as_before();  // while it is still open
      check_refused(each->set().publish(vote::yes), error_code::wrong_state);  // nothing is committed
      must(each->set().abort());
      each->demand_aborted(how, false);
      each->demand_repaired();
    }
  }
}

TEST_CASE_TEMPLATE_DEFINE("votes: unknown before the commit leaves the updates open; a later yes succeeds", Executor, votes_unknown) {
  for (const voted_case& how : voted_cases) {
    INFO(how.name());
    voting_rank<Executor> rank(0);
    must(rank.start(how));
    must(rank.load(true));
    check_refused(rank.set().commit(vote::yes), error_code::wrong_state);  // not prepared
    check_refused(rank.set().prepare(), error_code::incomplete);
    check_refused(rank.set().commit(vote::yes), error_code::wrong_state);  // the target is, the draft is not
    if (how.mode != update_mode::direct) rank.demand_as_before();
    must(rank.load_omitted());                                             // a refusal leaves the draft open
    must(rank.set().prepare());
    must(rank.set().prepare());
    check_refused(rank.set().publish(vote::yes), error_code::wrong_state);
    check_refused(rank.set().commit(vote::unknown), error_code::not_unanimous);
    check_refused(rank.set().commit(vote::no), error_code::not_unanimous);
    must(rank.set().commit(vote::yes));
    must(rank.set().commit(vote::yes));
    must(rank.set().publish(vote::yes));
    rank.demand_published();
  }
}

TEST_CASE_TEMPLATE_DEFINE("votes: once the deadline has passed the next call aborts; a committed set has none", Executor, votes_deadline) {
  const auto sleep_for = [](double seconds) { std::this_thread::sleep_for(std::chrono::duration<double>(seconds)); };
  for (const voted_case& how : voted_cases) {
    INFO(how.name());
    {
      voting_rank<Executor> rank(0);
      must(rank.start(how, 1e-9));
      must(rank.load());
      sleep_for(0.001);
      for (int again = 0; again < 2; ++again) CHECK(rank.set().prepare().code == error_code::aborted);
      CHECK(rank.set().commit(vote::yes).code == error_code::aborted);
      rank.demand_aborted(how, false);
      rank.demand_repaired();
    }
    for (const bool commits : {false, true})
      for (double deadline = 0.02, done = 0; done == 0; deadline *= 2) {  // long enough for this machine
        voting_rank<Executor> rank(0);
        must(rank.start(how, deadline));
        must(rank.load());
        if (!rank.set().prepare().ok()) continue;
        if (commits && !rank.set().commit(vote::yes).ok()) continue;
        done = 1;
        sleep_for(deadline);
        if (commits) {
          must(rank.set().commit(vote::yes));  // done already
          must(rank.set().publish(vote::yes));
          rank.demand_published();
        } else {
          CHECK(rank.set().commit(vote::yes).code == error_code::aborted);
          rank.demand_aborted(how, false);
        }
      }
  }
}

TEST_CASE_TEMPLATE_DEFINE("votes: a rank dies before the commit; the others are as before", Executor, votes_dead_early) {
  for (const voted_case& how : voted_cases) {
    INFO(how.name());
    voting_ranks<Executor> ranks(3);
    ranks.run(how, {.dies = rank_death::before_prepare});
    ranks.fated().demand_aborted(how, false);
    ranks.survivors([&](voting_rank<Executor>& each) {
      CHECK(each.first == vote::unknown);
      check_refused(each.committed, error_code::not_unanimous);
      must(each.set().abort());
      each.demand_aborted(how, false);
      each.demand_repaired();
    });
    ranks.fated().demand_repaired();
  }
}

TEST_CASE_TEMPLATE_DEFINE("votes: a rank dies after the commit; the others are in doubt until they decide", Executor, votes_doubt) {
  std::int64_t turn = 0;
  enum class decision { yes, no, abort, dropped };
  for (const voted_case& how : voted_cases)
    for (const rank_death when : {rank_death::after_prepare, rank_death::after_commit})
      for (const decision decided : {decision::yes, decision::no, decision::abort, decision::dropped}) {
        if (turn++ % test_sparsity() != 0) continue;
        INFO(how.name());
        CAPTURE(static_cast<int>(decided));
        voting_ranks<Executor> ranks(2 + static_cast<int>(decided) % 2);
        ranks.run(how, {.dies = when});
        ranks.fated().demand_aborted(how, when == rank_death::after_commit);
        ranks.survivors([&](voting_rank<Executor>& each) {
          CHECK(each.first == vote::yes);
          CHECK(each.second == vote::unknown);
          check_refused(each.published, error_code::not_unanimous);
          each.demand_state(model_state::in_doubt);
          each.demand_no_partial();
          for (std::size_t i = 0; i < 2; ++i) {
            CHECK(each.engine(i).model().version() == 1);
            CHECK(!each.engine(i).model().can_roll_back());
            status refused;  // nor a complete one beside it
            CHECK(!each.engine(i).model().start({}, &refused).is_open());
          }
          check_refused(each.set().publish(vote::unknown), error_code::not_unanimous);  // still
          each.demand_state(model_state::in_doubt);
          switch (decided) {
            case decision::yes:
              must(each.set().publish(vote::yes));
              each.demand_published();
              break;
            case decision::no:
              CHECK(each.set().publish(vote::no).code == error_code::not_unanimous);
              each.demand_aborted(how, true);
              break;
            case decision::abort:
              must(each.set().abort());
              each.demand_aborted(how, true);
              break;
            case decision::dropped: {
              each.drop();
              each.demand_state(model_state::in_doubt);
              each.demand_no_partial();
              CHECK(!each.engine(0).model().can_roll_back());
              must(each.start(how));  // a complete update, given up before it wrote: still in doubt
              each.drop();
              each.demand_state(model_state::in_doubt);
              break;
            }
          }
          each.demand_repaired();
        });
        ranks.fated().demand_repaired();
      }
}

TEST_CASE_TEMPLATE_DEFINE("votes: a rank dies after the last vote; the others have published", Executor, votes_dead_late) {
  for (const voted_case& how : voted_cases) {
    INFO(how.name());
    voting_ranks<Executor> ranks(3);
    ranks.run(how, {.dies = rank_death::before_publish});
    ranks.survivors([&](voting_rank<Executor>& each) {
      must(each.published);
      each.demand_published();
    });
    ranks.fated().demand_aborted(how, true);
    ranks.fated().demand_repaired();
  }
}

TEST_CASE_TEMPLATE_DEFINE("votes: a commit that fails on one rank aborts all", Executor, votes_failed) {
  std::int64_t turn = 0;
  for (const voted_case& how : voted_cases)
    for (const std::string_view operation : {"land", "dequantise", "combine", "launch", "hold", "wait", "exchange"})
      for (const bool draft : {false, true}) {
        const bool happens = operation == "exchange" ? how.mode == update_mode::swap
                             : operation == "land"   ? how.mode == update_mode::staged
                             : operation == "hold"   ? how.mode != update_mode::direct
                                                     : true;
        if (!happens || turn++ % test_sparsity() != 0) continue;
        INFO(how.name());
        CAPTURE(operation);
        CAPTURE(draft);
        voting_ranks<Executor> ranks(2);
        ranks.run(how, {.fails = operation, .fails_draft = draft});
        CHECK(ranks.fated().committed.code == error_code::execution_failed);
        for (const auto& each : ranks.all) {
          each->select();
          CHECK(each->second == vote::no);
          CHECK(each->published.code == error_code::not_unanimous);
          if (each == ranks.all[0] || how.is_atomic(true))
            each->demand_aborted(how, true);
          else
            each->demand_as_before_or_undefined();  // one of them may not have got so far
          each->demand_repaired();
        }
      }
}

}  // namespace wreload::test
