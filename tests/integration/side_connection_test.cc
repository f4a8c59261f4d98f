// The C++ client's end of the side socket: signals, forks, refusals, and sockets that are lost.
#include "client/cpp/side_connection.h"

#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <csignal>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <thread>

#include "google/rpc/status.pb.h"
#include "tests/integration/arena_fixture.h"

namespace rlk::test {
namespace {

using client::SideConnection;

// A socket at `path`, which connects to nobody until it listens.
int Bind(const std::string& path) {
  sockaddr_un address = {};
  address.sun_family = AF_UNIX;
  strncpy(address.sun_path, path.c_str(), sizeof(address.sun_path) - 1);
  const int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
  EXPECT_EQ(bind(fd, reinterpret_cast<const sockaddr*>(&address), sizeof(address)), 0);
  return fd;
}

// A server of one connection, whose answers the test sends.
class SideConnectionTest : public testing::Test {
 protected:
  SideConnectionTest() : listening_(Bind(path())) { EXPECT_EQ(listen(listening_, 1), 0); }
  ~SideConnectionTest() override {
    close(listening_);
    if (accepted_ >= 0) close(accepted_);
  }
  std::string path() const { return dir_.File("s.side"); }
  void Connect() {
    const auto connection = SideConnection::Connect(path());
    ASSERT_TRUE(connection.ok()) << connection.status();
    connection_ = *connection;
    accepted_ = accept(listening_, nullptr, nullptr);
    ASSERT_GE(accepted_, 0);
  }
  void Answer(const rlk::v1::SideReply& reply) const {
    const std::string packet = reply.SerializeAsString();
    EXPECT_EQ(send(accepted_, packet.data(), packet.size(), MSG_NOSIGNAL),
              static_cast<ssize_t>(packet.size()));
  }
  void Refuse(grpc::StatusCode code) {
    google::rpc::Status status;
    status.set_code(code);
    status.set_message("not now");
    rlk::v1::SideReply reply;
    reply.set_error(status.SerializeAsString());
    Answer(reply);
    close(std::exchange(accepted_, -1));
  }

  TempDir dir_;
  const int listening_;
  int accepted_ = -1;
  std::shared_ptr<SideConnection> connection_;
};

std::atomic<int> handled{0};
void Handle(int) { handled.fetch_add(1); }

// The thread's state as the kernel tells it: 'S' where it sleeps, 'X' where it has ended.
char StateOf(pid_t thread) {
  std::ifstream file("/proc/self/task/" + std::to_string(thread) + "/stat");
  std::string text;
  std::getline(file, text);
  const size_t name_end = text.rfind(')');
  return name_end == std::string::npos ? 'X' : text.at(name_end + 2);
}

TEST_F(SideConnectionTest, SignalsDoNotEndAQuestion) {
  Connect();
  struct sigaction action = {};
  struct sigaction before = {};
  action.sa_handler = Handle;  // without SA_RESTART
  ASSERT_EQ(sigaction(SIGUSR1, &action, &before), 0);
  std::atomic<pid_t> asking{0};
  std::atomic<bool> answered{false};
  absl::StatusOr<rlk::v1::SideReply> reply = absl::UnknownError("");
  std::thread thread([&] {
    asking = static_cast<pid_t>(syscall(SYS_gettid));
    reply = connection_->Ask(rlk::v1::SideRequest());
    answered = true;
  });
  while (asking == 0) std::this_thread::yield();
  for (int count = 1; count <= 3 && !answered; ++count) {
    while (!answered && StateOf(asking) != 'S') std::this_thread::yield();
    pthread_kill(thread.native_handle(), SIGUSR1);
    while (!answered && handled < count) std::this_thread::yield();
  }
  EXPECT_FALSE(answered);
  rlk::v1::SideReply answer;
  answer.mutable_open_session()->set_token("here");
  Answer(answer);
  thread.join();
  sigaction(SIGUSR1, &before, nullptr);
  ASSERT_TRUE(reply.ok()) << reply.status();
  EXPECT_EQ(reply->open_session().token(), "here");
}

TEST_F(SideConnectionTest, AForkAsksNothing) {
  Connect();
  const pid_t child = fork();
  if (child == 0) {
    const absl::Status asked = connection_->Ask(rlk::v1::SideRequest()).status();
    connection_->Close();
    _exit(ReasonOf(asked) == Reason::kPlacementUnavailable ? 7 : 1);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  ASSERT_TRUE(WIFEXITED(status));
  EXPECT_EQ(WEXITSTATUS(status), 7);
  // The parent's end is as it was, and nothing was sent.
  char byte = 0;
  EXPECT_EQ(recv(accepted_, &byte, 1, MSG_DONTWAIT), -1);
  EXPECT_EQ(errno, EAGAIN);
}

TEST_F(SideConnectionTest, TellsNoSocketFromOneThatIsNotToBeHad) {
  EXPECT_TRUE(absl::IsNotFound(SideConnection::Connect("").status()));
  EXPECT_TRUE(absl::IsNotFound(SideConnection::Connect(dir_.File("none")).status()));
  const int silent = Bind(dir_.File("silent"));
  EXPECT_TRUE(absl::IsUnavailable(SideConnection::Connect(dir_.File("silent")).status()));
  close(silent);
}

TEST_F(SideConnectionTest, ARefusalIsReadThoughTheQuestionCannotBeSent) {
  for (const auto code :
       {grpc::StatusCode::PERMISSION_DENIED, grpc::StatusCode::RESOURCE_EXHAUSTED}) {
    Connect();
    Refuse(code);
    const absl::Status asked = connection_->Ask(rlk::v1::SideRequest()).status();
    EXPECT_EQ(static_cast<int>(asked.code()), static_cast<int>(code)) << asked;
    EXPECT_TRUE(absl::IsUnavailable(connection_->Ask(rlk::v1::SideRequest()).status()));
  }
}

TEST_F(SideConnectionTest, ARefusalIsReadThoughTheQuestionWasNot) {
  Connect();
  absl::Status asked;
  rlk::v1::SideRequest request;
  request.mutable_open_session();
  std::thread thread([&] { asked = connection_->Ask(request).status(); });
  pollfd waited = {accepted_, POLLIN, 0};
  ASSERT_EQ(poll(&waited, 1, -1), 1);
  Refuse(grpc::StatusCode::RESOURCE_EXHAUSTED);
  thread.join();
  EXPECT_TRUE(absl::IsResourceExhausted(asked)) << asked;
}

// An address of the server whose side socket the test makes.
class LostSideTest : public ArenaTest {
 protected:
  LostSideTest() { std::filesystem::create_symlink(dir_.File("socket"), dir_.File("other")); }
  std::string other() const { return "unix:" + dir_.File("other"); }
  std::string other_side() const { return dir_.File("other") + ".side"; }

  static absl::StatusOr<client::CallResult> CallLarge(const Client& client) {
    client::Tensor x = *client::Tensor::Allocate(DType::kF32, std::vector<int64_t>{1000, 1100});
    for (float& value : x.mutable_as<float>()) value = 3;
    CallRequest request{.method = "final_logit_softcap.forward"};
    request.inputs = {{"x", x.ref()}};
    return client.Call(request);
  }
};

TEST_F(LostSideTest, IsAskedAgainAndTold) {
  const int silent = Bind(other_side());  // it does not listen: connections are refused
  const auto client = Client::Connect(other());
  ASSERT_TRUE(client.ok());
  for (int i = 0; i < 2; ++i) {
    EXPECT_TRUE(absl::IsUnavailable(client->OpenArena(ArenaKind::kHostInput, kMiB).status()));
  }
  const auto late = Client::Connect(other());
  for (int i = 0; i < 2; ++i) {  // each call says so, and not only the first
    const auto result = CallLarge(*late);
    ASSERT_TRUE(result.ok()) << result.status();
    EXPECT_NE(result->slower.find("side socket"), std::string::npos) << result->slower;
    EXPECT_EQ(result->report->transports(0), "resident");
  }
  close(silent);
  std::filesystem::remove(other_side());
  std::filesystem::create_symlink(side(), other_side());
  const auto result = CallLarge(*client);
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_EQ(result->slower, "");
  const auto& transports = result->report->transports();
  EXPECT_EQ(std::count(transports.begin(), transports.end(), "host_arena"), 1);
}

TEST_F(LostSideTest, NothingIsPromisedWhereThereIsNone) {
  const auto client = Client::Connect(other());
  const auto result = CallLarge(*client);
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_EQ(result->slower, "");
  EXPECT_TRUE(absl::IsFailedPrecondition(client->OpenArena(ArenaKind::kHostInput, kMiB).status()));
}

}  // namespace
}  // namespace rlk::test
