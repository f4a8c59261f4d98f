#include "server/rpc/handshake.h"

#include <dlfcn.h>
#include <openssl/err.h>
#include <openssl/ssl.h>

#include <algorithm>
#include <cstdlib>
#include <mutex>
#include <utility>
#include <vector>

namespace rlk::server {
namespace {

struct Watches {
  std::mutex mutex;
  std::vector<const HandshakeWatch*> all;  // guarded by mutex
};

// Never destroyed: gRPC's threads may outlive every static.
Watches& AllWatches() {
  static Watches& watches = *new Watches;
  return watches;
}

// What the library found wrong, by the message that it was reading.
CredentialRefusal RefusalOf(const SSL* ssl) {
  const unsigned long error = ERR_peek_last_error();
  // The caller gave up: it has sent an alert, whose number of 8 bits is in the reason.
  const int alert = ERR_GET_REASON(error) - SSL_AD_REASON_OFFSET;
  if (ERR_GET_LIB(error) == ERR_LIB_SSL && alert >= 0 && alert < 256) {
    return CredentialRefusal::kHandshakeFailed;
  }
  switch (SSL_get_state(ssl)) {
    case TLS_ST_SR_CERT:
      return CredentialRefusal::kCertificateMalformed;
    case TLS_ST_SR_CERT_VRFY:
      return CredentialRefusal::kCertificateOther;
    default:
      return CredentialRefusal::kHandshakeFailed;
  }
}

// A caller that resumes a session does not send its chain again, without which a certificate from
// below an intermediate cannot be verified. So where certificates are asked for, every handshake is
// a whole one.
void ForbidResumption(SSL* ssl) {
  if (!SSL_in_before(ssl) || (SSL_get_verify_mode(ssl) & SSL_VERIFY_PEER) == 0) return;
  SSL_set_options(ssl, SSL_OP_NO_TICKET);
  SSL_set_num_tickets(ssl, 0);
  // Before the first of its handshakes, so that none reads it at the same time.
  static std::mutex mutex;
  const std::lock_guard lock(mutex);
  SSL_CTX* const listeners = SSL_get_SSL_CTX(ssl);
  if (SSL_CTX_get_session_cache_mode(listeners) == SSL_SESS_CACHE_OFF) return;
  SSL_CTX_set_session_cache_mode(listeners, SSL_SESS_CACHE_OFF);
}

int LibrarysHandshake(SSL* ssl) {
  using Function = int (*)(SSL*);
  static const auto function = reinterpret_cast<Function>(dlsym(RTLD_NEXT, "SSL_do_handshake"));
  if (function == nullptr) std::abort();
  return function(ssl);
}

}  // namespace

void TellOfFailure(CredentialRefusal why) {
  Watches& watches = AllWatches();
  const std::lock_guard lock(watches.mutex);
  for (const HandshakeWatch* const watch : watches.all) watch->on_failed_(why);
}

HandshakeWatch::HandshakeWatch(std::function<void(CredentialRefusal)> on_failed)
    : on_failed_(std::move(on_failed)) {
  const std::lock_guard lock(AllWatches().mutex);
  AllWatches().all.push_back(this);
}

HandshakeWatch::~HandshakeWatch() {
  const std::lock_guard lock(AllWatches().mutex);
  std::erase(AllWatches().all, this);
}

}  // namespace rlk::server

// Takes the place of the library's for gRPC, and for clients of this process, whom it leaves alone.
extern "C" int SSL_do_handshake(SSL* ssl) {
  using namespace rlk::server;
  if (SSL_is_server(ssl) == 0) return LibrarysHandshake(ssl);
  ForbidResumption(ssl);
  const int done = LibrarysHandshake(ssl);
  if (done != 1 && SSL_get_error(ssl, done) == SSL_ERROR_SSL) TellOfFailure(RefusalOf(ssl));
  return done;
}
