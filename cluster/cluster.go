// Package cluster shares limits and batches among hosts through Redis or Valkey.
//
// A Cluster is a connection. Its Ledger is a sluice.Ledger: Schedulers of several processes that use it stay within one limit
// together. A Collector submits the items of a batch and records their results, and Workers on any host send them.
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

// Config shapes a Cluster.
type Config struct {
	// URL is where the engine is, in one of these forms:
	//
	//	redis://[user[:password]@]host[:6379][/database]                    one server, or any node of a cluster
	//	rediss://...                                                        the same over TLS
	//	redis://[user[:password]@]host1:6379?addr=host2:6379&addr=...       several nodes of a cluster
	//	redis://[user[:password]@]host1:26379?addr=host2:26379&master_set=NAME   sentinels, and the name they know the server by
	//	unix://[user[:password]@]/path/to/socket[?db=database]              a socket of this host
	//
	// With valkey: and valkeys: for redis: and rediss: it is the same. rediss: takes ca_file=FILE (certificates to trust in
	// place of the system's, in PEM), cert_file=FILE and key_file=FILE (the client's own), server_name=NAME (for certificates
	// of another name than the address), and insecure=true, which trusts anybody and is warned of. Sentinels that want
	// a user of their own take sentinel_user=NAME. Nothing else is accepted.
	URL string

	// Password is for a URL without one: a command line is no place for it, and here it needs no escapes. "" is none.
	Password string

	// SentinelPassword is the password of the sentinels. "" means none.
	SentinelPassword string

	// Role is shown among the members: run, serve or worker.
	Role string

	// Version of the program, shown among the members.
	Version string

	// Logger gets warnings about the connection. Nil discards.
	Logger *slog.Logger
}

// Cluster is a connection to the engine that several processes share. It is safe for concurrent use. It connects again by
// itself when the connection is lost.
type Cluster struct {
	cfg    Config
	at     endpoint
	client connection
	engine Engine
	member string // names this process among the members
	terms  terms  // of the ends of a batch; zero: the usual
	here   *membership
	closed atomic.Bool
}

// Open connects and checks that the server is Redis or Valkey from version 7 on, lets the user write and run scripts, is not a
// replica, and does not evict keys. It logs doubts. It takes 10 seconds at most. The error is an *Error.
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

// Close takes this process from the members and ends the connection. Ledgers and ends of batches are to be closed before.
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

// String is the engine's URL without its password and options.
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
