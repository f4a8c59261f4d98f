#include "client/cli/floor_server.h"

#include <fcntl.h>
#include <grpcpp/security/server_credentials.h>
#include <grpcpp/server_builder.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <utility>

#include "rlk/v1/server.grpc.pb.h"
#include "rlk/v1/tensor_service.grpc.pb.h"

extern char** environ;

namespace rlk::cli {
namespace {

// The handler kind with the least work: raw bytes, answered in the callback. GetInfo's name is
// borrowed, its messages are not looked at.
class EmptyService : public rlk::v1::ServerService::WithRawCallbackMethod_GetInfo<
                         rlk::v1::ServerService::Service> {
 public:
  grpc::ServerUnaryReactor* GetInfo(grpc::CallbackServerContext* context, const grpc::ByteBuffer*,
                                    grpc::ByteBuffer* reply) override {
    const grpc::Slice empty;
    *reply = grpc::ByteBuffer(&empty, 1);
    grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
    reactor->Finish(grpc::Status::OK);
    return reactor;
  }
};

struct Pipe {
  int read_end = -1, write_end = -1;
  ~Pipe() {
    if (read_end >= 0) close(read_end);
    if (write_end >= 0) close(write_end);
  }
};

absl::Status OpenPipe(Pipe& ends) {
  int descriptors[2];
  if (pipe2(descriptors, O_CLOEXEC) != 0) return absl::InternalError("cannot make a pipe");
  ends.read_end = descriptors[0];
  ends.write_end = descriptors[1];
  return absl::OkStatus();
}

std::string ReadLine(int descriptor) {
  std::string line;
  for (char c; read(descriptor, &c, 1) == 1 && c != '\n';) line.push_back(c);
  return line;
}

// What a server with generated code does with a message of bytes: it parses it.
class BytesService : public rlk::v1::TensorService::CallbackService {
 public:
  grpc::ServerUnaryReactor* ListTensors(grpc::CallbackServerContext* context,
                                        const rlk::v1::ListTensorsRequest*,
                                        rlk::v1::ListTensorsResponse*) override {
    grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
    reactor->Finish(grpc::Status::OK);
    return reactor;
  }
};

}  // namespace

int RunFloorServer(const std::vector<std::string>& words) {
  if (words.size() != 2) return 2;
  EmptyService service;
  BytesService bytes;
  grpc::ServerBuilder builder;
  int port = 0;
  builder.AddListeningPort(words[1], grpc::InsecureServerCredentials(), &port);
  builder.RegisterService(&service);
  builder.RegisterService(&bytes);
  builder.SetMaxReceiveMessageSize(-1);
  const std::unique_ptr<grpc::Server> server = builder.BuildAndStart();
  if (server == nullptr) return 1;
  const std::string line = std::to_string(port) + "\n";
  if (write(STDOUT_FILENO, line.data(), line.size()) < 0) return 1;
  char c;
  ssize_t got;
  do {
    got = read(STDIN_FILENO, &c, 1);
  } while (got > 0 || (got < 0 && errno == EINTR));
  server->Shutdown(std::chrono::system_clock::now());
  return 0;
}

absl::StatusOr<FloorServer> FloorServer::Start(bool unix_socket) {
  FloorServer server;
  std::string listen = "127.0.0.1:0";
  if (unix_socket) {
    const char* base = std::getenv("TMPDIR");
    std::string path = std::string(base == nullptr ? "/tmp" : base) + "/rlk-floor-XXXXXX";
    if (mkdtemp(path.data()) == nullptr) return absl::InternalError("cannot make " + path);
    server.directory_ = path;
    listen = "unix:" + path + "/socket";
  }
  Pipe to_child, from_child;
  if (absl::Status status = OpenPipe(to_child); !status.ok()) return status;
  if (absl::Status status = OpenPipe(from_child); !status.ok()) return status;
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_adddup2(&actions, to_child.read_end, STDIN_FILENO);
  posix_spawn_file_actions_adddup2(&actions, from_child.write_end, STDOUT_FILENO);
  std::string name = "rlk", command = kFloorServerCommand;
  char* const argv[] = {name.data(), command.data(), listen.data(), nullptr};
  const int error =
      posix_spawn(&server.process_, "/proc/self/exe", &actions, nullptr, argv, environ);
  posix_spawn_file_actions_destroy(&actions);
  if (error != 0) {
    server.process_ = -1;
    return absl::InternalError(std::string("cannot start the floor server: ") + strerror(error));
  }
  server.stdin_ = std::exchange(to_child.write_end, -1);
  close(std::exchange(from_child.write_end, -1));
  const std::string port = ReadLine(from_child.read_end);
  if (port.empty()) return absl::InternalError("the floor server did not start at " + listen);
  server.address_ = unix_socket ? listen : "127.0.0.1:" + port;
  return server;
}

FloorServer::FloorServer(FloorServer&& other) noexcept
    : process_(std::exchange(other.process_, -1)),
      stdin_(std::exchange(other.stdin_, -1)),
      directory_(std::exchange(other.directory_, "")),
      address_(std::move(other.address_)) {}

FloorServer::~FloorServer() {
  if (stdin_ >= 0) close(stdin_);
  if (process_ > 0) {
    while (waitpid(process_, nullptr, 0) < 0 && errno == EINTR) {
    }
  }
  if (!directory_.empty()) {
    unlink((directory_ + "/socket").c_str());
    rmdir(directory_.c_str());
  }
}

}  // namespace rlk::cli
