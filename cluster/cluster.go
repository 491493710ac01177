// Package cluster shares limits and batches among hosts through Redis or Valkey. In this documentation, Redis means Redis or Valkey.
//
// A Cluster is a connection to Redis. Cluster.Ledger returns a sluice.Ledger, with which Schedulers in several processes share the
// limits of an account. A Collector submits a batch's items and receives their results. Workers on any host process the items.
package cluster

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"log/slog"
	"strings"
	"sync/atomic"
	"time"
)

// How long Open waits. A lost packet of a handshake is sent again after a second, and after two more.
const (
	dialTimeout = 4 * time.Second  // for one connection, and for the engine's greeting
	openTimeout = 10 * time.Second // for all: an engine of many addresses, and the checks
)

// Config configures a Cluster. Only URL is required.
type Config struct {
	// URL is the address of Redis, in one of these forms:
	//
	//	redis://[user[:password]@]host[:6379][/database]                    one server, or any node of a cluster
	//	rediss://...                                                        the same over TLS
	//	redis://[user[:password]@]host1:6379?addr=host2:6379&addr=...       several nodes of a cluster
	//	redis://[user[:password]@]host1:26379?addr=host2:26379&master_set=NAME   sentinels, and the name of their master set
	//	unix://[user[:password]@]/path/to/socket[?db=database]              a socket of this host
	//
	// The schemes valkey: and valkeys: mean redis: and rediss:. With rediss:, ca_file=FILE names a PEM file of certificates to trust
	// instead of the system's. cert_file=FILE and key_file=FILE name the client's certificate and key. server_name=NAME sets the
	// expected name in the server's certificate. insecure=true accepts any certificate, with a warning. sentinel_user=NAME is the
	// user name for the sentinels. Other options are errors.
	URL string

	// Password is the password, without URL escapes, for a URL without a password. "" means none.
	Password string

	// SentinelPassword is the password for the sentinels. "" means none.
	SentinelPassword string

	// Role is the value of Member.Role: run, serve or worker.
	Role string

	// Version is the version of the program, shown in Member.Version.
	Version string

	// Logger gets warnings about the connection. Nil means none.
	Logger *slog.Logger
}

// Cluster is a connection to Redis. A Cluster reconnects by itself. Create a Cluster with Open. A Cluster is safe for concurrent use.
type Cluster struct {
	cfg    Config
	at     endpoint
	client connection
	engine Engine
	member string // names this process among the members
	terms  terms  // of the ends of a batch; zero: the usual
	here   *membership
	closed atomic.Bool
	lost   atomic.Int32 // Ledgers whose engine does not answer
}

// Open connects to Redis and checks it, within 10 s. The server needs version 7 or later, and must not be a replica or evict keys.
// The user needs permission to write and to run scripts. If Open cannot read the version, it logs a warning. All errors are *Error
// values.
func Open(ctx context.Context, cfg Config) (*Cluster, error) {
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	at, err := parseURL(cfg.URL)
	if err != nil {
		return nil, err
	}
	if at.password == "" {
		at.password = cfg.Password
	}
	at.sentinelPassword = cfg.SentinelPassword
	option, err := at.option()
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, openTimeout)
	defer cancel()
	client, err := dial(ctx, option)
	if err != nil {
		return nil, at.explain(ctx, translate(err))
	}
	return open(ctx, cfg, at, redis{client})
}

// open checks what Redis can do.
func open(ctx context.Context, cfg Config, at endpoint, client connection) (*Cluster, error) {
	c := &Cluster{cfg: cfg, at: at, member: newMember(), client: client}
	if err := c.check(ctx); err != nil {
		c.client.close()
		return nil, at.explain(ctx, err)
	}
	c.here = newMembership(c)
	return c, nil
}

// Close removes this instance from its accounts and closes the connection. Before Close, close all Ledgers, Collectors and Workers.
func (c *Cluster) Close() error {
	c.here.close()
	c.closed.Store(true)
	c.client.close()
	return nil
}

// newLink is how an end of a queue speaks to the engine.
func (c *Cluster) newLink() *link {
	return &link{at: &c.at, client: c.client, closed: &c.closed, log: c.cfg.Logger}
}

// Away reports whether a Ledger waits for Redis, or does without it.
func (c *Cluster) Away() bool { return c.lost.Load() > 0 }

// String returns the URL without password and options.
func (c *Cluster) String() string { return c.at.String() }

// newMember returns 65 random bits as 13 letters and digits.
func newMember() string {
	return strings.ToLower(rand.Text()[:13])
}

// hashTag begins the keys of an account or a job, before a colon. All of one name lie in the same slot of a cluster, as a script
// needs it. The name is hashed: it may be long, and hold what braces mean something in.
func hashTag(name string) string {
	sum := sha256.Sum256([]byte(name))
	return "{sluice:" + hex.EncodeToString(sum[:8]) + "}"
}

// isRefusal reports whether the engine answered, and with an error that begins with one of these words.
func isRefusal(err error, words ...string) bool {
	refused, ok := errors.AsType[redisError](err)
	if !ok {
		return false
	}
	for _, word := range words {
		if strings.HasPrefix(refused.Error(), word) {
			return true
		}
	}
	return len(words) == 0
}
