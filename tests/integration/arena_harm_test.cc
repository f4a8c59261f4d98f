// Arenas and those who mean harm, are killed, or call a hundred thousand times.
#include <fcntl.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cmath>
#include <cstring>
#include <fstream>
#include <iterator>
#include <optional>
#include <random>
#include <thread>

#include "rlk/v1/session.grpc.pb.h"
#include "tests/integration/arena_fixture.h"
#include "tests/integration/server_process.h"

namespace rlk::test {
namespace {

TEST_F(ArenaTest, TheKernelRefusesWhatWouldHarmTheServer) {
  SidePeer peer(side());
  ASSERT_TRUE(peer.OpenSession().has_open_session());
  for (const auto kind : {rlk::v1::ARENA_KIND_HOST_INPUT, rlk::v1::ARENA_KIND_HOST_OUTPUT}) {
    const int fd = peer.OpenArena(kind, kMiB).second;
    ASSERT_GE(fd, 0);
    EXPECT_NE(ftruncate(fd, 4096), 0);
    EXPECT_NE(ftruncate(fd, 2 * kMiB), 0);
    EXPECT_NE(fcntl(fd, F_ADD_SEALS, F_SEAL_WRITE), 0);
    const bool result = kind == rlk::v1::ARENA_KIND_HOST_OUTPUT;
    void* const writable = mmap(nullptr, kMiB, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    EXPECT_EQ(writable == MAP_FAILED, result);
    const char byte = 1;
    EXPECT_EQ(pwrite(fd, &byte, 1, 0), result ? -1 : 1);
    EXPECT_EQ(fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, 4096) != 0, result);
    const std::string again = "/proc/self/fd/" + std::to_string(fd);
    const int reopened = open(again.c_str(), O_RDWR | O_CLOEXEC);
    void* const readable = mmap(nullptr, kMiB, PROT_READ, MAP_SHARED, fd, 0);
    ASSERT_NE(readable, MAP_FAILED);
    if (result) {
      EXPECT_NE(mprotect(readable, kMiB, PROT_READ | PROT_WRITE), 0);
    }
    if (result && reopened >= 0) {
      EXPECT_EQ(mmap(nullptr, kMiB, PROT_READ | PROT_WRITE, MAP_SHARED, reopened, 0), MAP_FAILED);
    }
    if (writable != MAP_FAILED) munmap(writable, kMiB);
    munmap(readable, kMiB);
    if (reopened >= 0) close(reopened);
    close(fd);
  }
}

// The server takes no descriptor, whatever comes with a packet.
TEST_F(ArenaTest, TakesNoDescriptors) {
  SidePeer peer(side());
  // Answered, so that the server has what it needs for the connection.
  ASSERT_TRUE(peer.OpenSession().has_open_session());
  rlk::v1::SideRequest request;
  request.mutable_free_slot()->set_generation(1);
  const int fd = open("/dev/null", O_RDWR | O_CLOEXEC);
  const int before = OpenDescriptors();
  for (int i = 0; i < 3; ++i) EXPECT_FALSE(peer.AskWith(request, fd).error().empty());
  EXPECT_EQ(OpenDescriptors(), before);
  close(fd);
}

TEST_F(ArenaTest, WithoutASideSocketThereAreNoneAndTheServerSaysSo) {
  const TestServer plain;
  const Client client = *Client::Connect(plain.tcp());
  const auto arena = client.OpenArena(ArenaKind::kHostInput, kMiB);
  EXPECT_EQ(ReasonOf(arena.status()), Reason::kPlacementUnavailable) << arena.status();
  const auto capability = [](const Client& of, const std::string& name) {
    const auto info = of.GetInfo();
    for (const auto& entry : info->capabilities()) {
      if (entry.name() == name) return entry;
    }
    return rlk::v1::Capability();
  };
  EXPECT_FALSE(capability(client, "host_arena").available());
  EXPECT_NE(capability(client, "host_arena").reason(), "");
  const Client beside = *Client::Connect(address());
  EXPECT_TRUE(capability(beside, "host_arena").available());
  EXPECT_FALSE(capability(beside, "device_arena").available());
  EXPECT_EQ(capability(beside, "device_arena").reason(), "this server has no GPU");
  EXPECT_EQ(ReasonOf(beside.OpenArena(ArenaKind::kDevice, kMiB).status()), Reason::kDeviceNotFound);
}

TEST_F(ArenaTest, ASocketThatIsOpenToOthersGivesNoArenas) {
  const Client client = *Client::Connect(address());
  ASSERT_TRUE(client.OpenArena(ArenaKind::kHostInput, kMiB).ok());
  ASSERT_EQ(chmod(side().c_str(), 0666), 0);
  const auto refused = client.OpenArena(ArenaKind::kHostInput, kMiB);
  EXPECT_EQ(refused.status().code(), absl::StatusCode::kPermissionDenied);
  EXPECT_EQ(GetErrorDetail(refused.status())->value, "mode 0666");
  ASSERT_EQ(chmod(side().c_str(), 0600), 0);
  EXPECT_TRUE(client.OpenArena(ArenaKind::kHostInput, kMiB).ok());
}

TEST_F(ArenaTest, AnotherUserIsRefusedUnlessItIsNamed) {
  if (geteuid() != 0) GTEST_SKIP() << "only root can be another user";
  constexpr uint32_t kNobody = 65534;
  const auto as_nobody = [this] {
    ASSERT_EQ(chmod(dir_.File("").c_str(), 0755), 0);
    const SideResult result = AskAs(kNobody, side());
    EXPECT_TRUE(result.connected);
    reason_ = result.reason;
    got_descriptor_ = result.descriptor;
  };
  ASSERT_EQ(chmod(side().c_str(), 0666), 0);
  as_nobody();
  EXPECT_EQ(reason_, "PERMISSION_DENIED");
  EXPECT_FALSE(got_descriptor_);
  Start({}, {kNobody});
  as_nobody();
  EXPECT_EQ(reason_, "");
  EXPECT_TRUE(got_descriptor_);
}

// A session's arenas end with it; what lies in the pages then is nobody's.
TEST_F(ArenaTest, WhatIsLeftMappedAfterTheSessionIsFreedMemory) {
  std::optional<SidePeer> peer(side());
  ASSERT_TRUE(peer->OpenSession().has_open_session());
  const int fd = peer->OpenArena(rlk::v1::ARENA_KIND_HOST_INPUT, kMiB).second;
  void* const mapped = mmap(nullptr, kMiB, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  ASSERT_NE(mapped, MAP_FAILED);
  std::memset(mapped, 7, kMiB);
  peer.reset();
  AwaitSeries(*server_, "rlk_arena_bytes", 0);
  AwaitSeries(*server_, R"(rlk_device_memory_bytes{device="cpu:0",kind="arena"})", 0);
  EXPECT_EQ(static_cast<const char*>(mapped)[kMiB / 2], 0) << "the pages were taken away";
  static_cast<char*>(mapped)[0] = 1;
  munmap(mapped, kMiB);
  close(fd);
}

// Results cannot be taken out of a mapping: they stay charged while their process runs.
TEST_F(ArenaTest, ResultsStayChargedWhileTheirProcessMayMapThem) {
  std::optional<SidePeer> peer(side());
  ASSERT_TRUE(peer->OpenSession().has_open_session());
  const int fd = peer->OpenArena(rlk::v1::ARENA_KIND_HOST_OUTPUT, kMiB).second;
  peer.reset();
  AwaitSeries(*server_, "rlk_sessions", 0);
  AwaitSeries(*server_, R"(rlk_device_memory_bytes{device="cpu:0",kind="arena"})", 0);
  EXPECT_EQ(SeriesValue(Scrape(server_->metrics()), "rlk_arena_bytes"), kMiB);
  close(fd);
  // One that says that it has unmapped its arena is believed.
  SidePeer honest(side());
  ASSERT_TRUE(honest.OpenSession().has_open_session());
  const auto opened = honest.OpenArena(rlk::v1::ARENA_KIND_HOST_OUTPUT, kMiB);
  close(opened.second);
  rlk::v1::SideRequest request;
  request.mutable_close_arena()->set_arena(opened.first);
  EXPECT_TRUE(honest.Ask(request).has_close_arena());
  EXPECT_EQ(SeriesValue(Scrape(server_->metrics()), "rlk_arena_bytes"), kMiB);
}

// However many sessions of it end, a process costs one descriptor.
TEST_F(ArenaTest, AProcessIsHeldByOneDescriptor) {
  constexpr int kSessions = 20;
  for (int i = 0; i < kSessions; ++i) {
    SidePeer peer(side());
    ASSERT_TRUE(peer.OpenSession().has_open_session());
    const int fd = peer.OpenArena(rlk::v1::ARENA_KIND_HOST_OUTPUT, 4096).second;
    ASSERT_GE(fd, 0);
    close(fd);
  }
  AwaitSeries(*server_, "rlk_sessions", 0);
  EXPECT_EQ(SeriesValue(Scrape(server_->metrics()), "rlk_arena_bytes"), kSessions * 4096);
  EXPECT_EQ(OpenPidfds(), 1);
}

// A connection has room for a session: without one it is ended.
TEST_F(ArenaTest, AConnectionWithoutASessionIsEnded) {
  SidePeer holder(side());
  ASSERT_TRUE(holder.OpenSession().has_open_session());
  SidePeer closed(side());
  const auto stub = rlk::v1::SessionService::NewStub(DefaultChannel(address()));
  grpc::ClientContext context;
  context.AddMetadata("rlk-session", closed.OpenSession().open_session().token());
  rlk::v1::CloseSessionResponse response;
  ASSERT_TRUE(stub->CloseSession(&context, {}, &response).ok());
  (void)closed.AwaitEnd();
  SidePeer idle(side());
  EXPECT_EQ(idle.AwaitEnd().error(), "");
  const int fd = holder.OpenArena(rlk::v1::ARENA_KIND_HOST_INPUT, 4096).second;
  EXPECT_GE(fd, 0);
  close(fd);
}

TEST_F(ArenaTest, AUserLeavesRoomToOthers) {
  if (geteuid() != 0) GTEST_SKIP() << "only root can be another user";
  constexpr uint32_t kNobody = 65534;
  Limits limits;
  limits.sessions_max = 2;
  Start(limits, {kNobody});
  ASSERT_EQ(chmod(dir_.File("").c_str(), 0755), 0);
  SidePeer first(side());
  ASSERT_TRUE(first.OpenSession().has_open_session());
  const std::string refused = SidePeer(side()).AwaitEnd().error();
  EXPECT_EQ(FactsOf(grpc::Status(grpc::StatusCode::UNKNOWN, "", refused)).reason,
            "SESSIONS_EXHAUSTED");
  const SideResult other = AskAs(kNobody, side());
  EXPECT_EQ(other.reason, "");
  EXPECT_TRUE(other.descriptor);
}

TEST_F(ArenaTest, RefusedConnectionsDoNotFloodTheLog) {
  const std::string path = dir_.File("log");
  const int log = open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
  ASSERT_GE(log, 0);
  server_.reset();
  server::Options options = TestOptions();
  options.unix_path = dir_.File("socket");
  options.limits.sessions_max = 1;
  server_.emplace(options, server::ServerHooks{}, server::LogLevel::kWarning, log);
  SidePeer held(side());
  ASSERT_TRUE(held.OpenSession().has_open_session());
  for (int i = 0; i < 5; ++i) EXPECT_NE(SidePeer(side()).AwaitEnd().error(), "");
  std::ifstream file(path);
  const std::string text((std::istreambuf_iterator<char>(file)), {});
  const size_t first = text.find("side socket refused");
  ASSERT_NE(first, std::string::npos) << text;
  EXPECT_EQ(text.find("side socket refused", first + 1), std::string::npos) << text;
  server_.reset();
  close(log);
}

TEST_F(ArenaTest, AKilledClientGivesItsMemoryBackAtOnce) {
  for (const auto kind : {rlk::v1::ARENA_KIND_HOST_INPUT, rlk::v1::ARENA_KIND_HOST_OUTPUT}) {
    const pid_t child = HoldArena(side(), kind, kMiB);
    ASSERT_GT(child, 0);
    EXPECT_EQ(SeriesValue(Scrape(server_->metrics()), "rlk_arena_bytes"), kMiB);
    EXPECT_EQ(SeriesValue(Scrape(server_->metrics()), "rlk_leases"), 1);
    kill(child, SIGKILL);
    int ended = 0;
    ASSERT_EQ(waitpid(child, &ended, 0), child);
    AwaitSeries(*server_, "rlk_sessions", 0);
    AwaitSeries(*server_, "rlk_arena_bytes", 0);
    AwaitSeries(*server_, R"(rlk_device_memory_bytes{device="cpu:0",kind="arena"})", 0);
  }
}

// A client that writes into its own inputs while calls read them harms its own results alone.
// Values that are checked are checked where they are used.
TEST_F(ArenaTest, ScribblingHarmsNobodyElse) {
  const Shared hostile(address()), honest(address());
  constexpr int64_t kElements = 50'000, kTimesteps = 64, kChannels = 64;
  const ArenaSlot x = *hostile.in.Take(4 * kElements), t = *hostile.in.Take(4 * kTimesteps);
  const ArenaSlot y = *hostile.out.Take(4 * kElements);
  const ArenaSlot good = *honest.in.Take(4 * kElements), result = *honest.out.Take(4 * kElements);
  FillLogits(good.mutable_bytes());
  CallRequest kept = honest.Softcap(good, kElements);
  Place("y", result.place(), kept);
  ASSERT_TRUE(honest.client.Call(kept).ok());
  const std::string expected = Bytes(result.bytes(), 4 * kElements);

  std::atomic<bool> stop{false};
  std::jthread scribbler([&] {
    std::minstd_rand random(7);
    // Patterns that hurt: NaN, infinity, the largest and the smallest, indices far away.
    constexpr uint32_t kPatterns[] = {0,          0x7f800000, 0xff800000, 0x7fc00000, 0x7fffffff,
                                      0x80000000, 0xffffffff, 0x3f000000, 0x3f800000, 0x00000001};
    constexpr uint32_t kHalf = 0x3f000000;
    const auto words = [](const ArenaSlot& slot) {
      return reinterpret_cast<volatile uint32_t*>(slot.mutable_bytes().data());
    };
    for (int64_t i = 0; i < kTimesteps; ++i) words(t)[i] = kHalf;
    while (!stop) {
      for (int i = 0; i < 4096; ++i) {
        words(x)[random() % kElements] = kPatterns[random() % std::size(kPatterns)];
        // Now and then one timestep is none, for a moment.
        if (i % 64 != 0) continue;
        const auto at = static_cast<int64_t>(random() % kTimesteps);
        words(t)[at] = 0x7fc00000;
        for (int wait = 0; wait < 500; ++wait) words(x)[0] = static_cast<uint32_t>(wait);
        words(t)[at] = kHalf;
      }
    }
  });
  int64_t embedded = 0, refused = 0;
  for (int64_t i = 0; i < Count(300, 20'000); ++i) {
    CallRequest request = hostile.Softcap(x, kElements);
    Place("y", y.place(), request);
    if (i % 3 == 0) request.options.add_digests(rlk::v1::DIGEST_SCOPE_TENSOR);
    if (i % 7 == 0) request.options.set_verification(rlk::v1::VERIFICATION_REPEAT);
    const auto own = hostile.client.Call(request);
    ASSERT_TRUE(own.ok()) << own.status();
    request = {.method = "timestep_sinusoid_h3.forward"};
    request.inputs = {{"timestep", t.ref(DType::kF32, {kTimesteps})}};
    request.attributes = {{"num_channels", kChannels}};
    const auto embedding = hostile.client.Call(request);
    if (embedding.ok()) {
      ++embedded;
      for (const float value : embedding->Output("embedding")->as<float>()) {
        ASSERT_LE(std::fabs(value), 1.0f) << "a value that was not checked was used";
      }
    } else {
      ASSERT_EQ(ReasonOf(embedding.status()), Reason::kValueOutOfRange) << embedding.status();
      ++refused;
    }
    if (i % 16 != 0) continue;
    ASSERT_TRUE(honest.client.Call(kept).ok());
    ASSERT_TRUE(Bytes(result.bytes(), 4 * kElements) == expected);
  }
  stop = true;
  printf("%lld embedded, %lld refused\n", static_cast<long long>(embedded),
         static_cast<long long>(refused));
}

// Slots that calls use are read or written, and freed only when the calls are done.
TEST_F(ArenaTest, ASlotThatIsFreedDuringCallsIsGivenToNobodyBefore) {
  const Shared shared(address(), 8 * kMiB);
  constexpr int64_t kElements = 100'000;
  std::atomic<bool> stop{false};
  std::jthread calls([&] {
    while (!stop) {
      // Freed right behind the call, and one in flight is dropped with it.
      const ArenaSlot x = *shared.in.Take(4 * kElements);
      FillLogits(x.mutable_bytes());
      auto pending = shared.client.CallAsync(shared.Softcap(x, kElements));
    }
  });
  const ArenaSlot y = *shared.out.Take(4 * kElements);
  for (int64_t i = 0; i < Count(200, 5000); ++i) {
    const auto x = shared.in.Take(4 * kElements);
    if (!x.ok()) continue;  // the places of calls that are not done yet
    FillLogits(x->mutable_bytes());
    CallRequest request = shared.Softcap(*x, kElements);
    Place("y", y.place(), request);
    const auto result = shared.client.Call(request);
    ASSERT_TRUE(result.ok()) << result.status();
  }
  stop = true;
}

TEST(ArenaEnduranceTest, ManyCallsAndArenasLeakNothing) {
  const TempDir dir;
  const ServerProcess process({"--listen=", "--unix=" + dir.File("socket"), "--metrics=127.0.0.1:0",
                               "--selftest-interval-seconds=0"});
  const std::string address = "unix:" + dir.File("socket");
  const auto calls = [&](int64_t count) {
    const Shared shared(address, 64 << 10);
    for (int64_t i = 0; i < count; ++i) {
      const ArenaSlot x = *shared.in.Take(4096), y = *shared.out.Take(4096);
      CallRequest request = shared.Softcap(x, 1024);
      Place("y", y.place(), request);
      ASSERT_TRUE(shared.client.Call(request).ok());
    }
  };
  const auto arenas = [&](int64_t count) {
    const Client client = *Client::Connect(address);
    for (int64_t i = 0; i < count; ++i) {
      const Arena arena =
          *client.OpenArena(i % 2 == 0 ? ArenaKind::kHostInput : ArenaKind::kHostOutput, 256 << 10);
      const ArenaSlot slot = *arena.Take(1000);
    }
  };
  const auto descriptors = [&] { return OpenDescriptors(process.pid()); };
  const auto idle = [&] {
    while (SeriesValue(Scrape(process.metrics()), "rlk_sessions") != 0) std::this_thread::yield();
  };
  calls(500);
  arenas(50);
  idle();
  const int64_t rss = process.rss_bytes();
  const int own = OpenDescriptors(), theirs = descriptors();
  calls(Count(2000, 100'000));
  arenas(Count(200, 5000));
  idle();
  EXPECT_LE(process.rss_bytes() - rss, 8 * kMiB);
  // Connections are closed behind their clients.
  while (OpenDescriptors() > own || descriptors() > theirs) std::this_thread::yield();
  EXPECT_EQ(SeriesValue(Scrape(process.metrics()), "rlk_arena_bytes"), 0);
}

}  // namespace
}  // namespace rlk::test
