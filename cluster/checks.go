package cluster

import (
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"strconv"
	"strings"
	"sync"
	"syscall"

	"github.com/sluice-llm/sluice/internal/fault"
)

// oldest is the major version from which on Redis and Valkey have what the scripts use.
const oldest = 7

// Engine describes a Redis server. A field is empty if the Redis user may not read the value.
type Engine struct {
	Name    string `json:"name"`    // `redis`, `valkey` or another name.
	Version string `json:"version"` // Version, such as `7.0.15`.
	Mode    string `json:"mode"`    // `standalone`, `sentinel` or `cluster`.
	Durable bool   `json:"durable"` // Redis keeps an append-only file.
	known   bool   // it told whether it does
}

// Error reports why Redis cannot be used. An Error contains no password.
type Error struct {
	// At is the URL without password and options, or "" if the URL is invalid.
	At string
	// Err is the underlying error.
	Err error
	// Settings reports that a retry cannot succeed until the URL or the settings of Redis are changed.
	Settings bool

	hint string
}

// Error returns the URL and the cause.
func (e *Error) Error() string {
	if e.At == "" {
		return e.Err.Error()
	}
	return e.At + ": " + e.Err.Error()
}

// Unwrap returns the underlying error.
func (e *Error) Unwrap() error { return e.Err }

// Hint returns advice on how to correct the error, or "".
func (e *Error) Hint() string { return e.hint }

// FaultCode is the code of the error in the catalogue of errors.
func (e *Error) FaultCode() string {
	if e.Settings {
		return fault.RedisURL
	}
	return fault.Redis
}

// wrongURL is an error about a URL, or what it names.
func wrongURL(err error, hint string, args ...any) *Error {
	return &Error{Err: err, Settings: true, hint: fmt.Sprintf(hint, args...)}
}

// unfit is an error about what the engine is, or how it is set up.
func unfit(hint, format string, args ...any) *Error {
	return &Error{Err: fmt.Errorf(format, args...), Settings: true, hint: hint}
}

// probe is what Sluice's scripts need: to be run at all, to write keys of this name, to publish below it, and the time.
var probe = &script{text: `redis.call('SET', KEYS[1], 1, 'PX', 1000)
redis.call('PUBLISH', KEYS[1], '')
return redis.call('TIME')[1]`}

// check refuses an engine that cannot do what is needed, and warns of one that is doubtful.
func (c *Cluster) check(ctx context.Context) error {
	c.engine.Mode = c.client.mode()
	servers := c.servers()
	if len(c.at.addresses) == 1 && len(servers) == 1 && c.engine.Mode == "cluster" {
		c.engine.Mode = "standalone" // or a cluster of one, which is the same
	}
	all, err := c.ask(ctx, servers)
	if err != nil {
		return err
	}
	c.engine.known, c.engine.Durable = true, true // unless one says otherwise
	for _, info := range all {
		if err := c.judge(info); err != nil {
			return err
		}
	}
	if c.engine.Mode == "cluster" && c.at.database != 0 {
		return wrongURL(errors.New("a Redis cluster has only database 0"), "remove the database from the URL")
	}
	if _, err = c.client.eval(ctx, probe, []string{c.probeKey()}, nil); err == nil {
		err = c.may(ctx, ledgerCommands)
	}
	if err != nil {
		return err
	}
	if c.at.insecure {
		c.cfg.Logger.Warn("insecure=true: the certificate of " + c.at.String() + " is not verified, so others on the network can read and change all data")
	}
	if c.engine.Version == "" {
		c.cfg.Logger.Warn(c.at.String() + " does not report its version and maxmemory-policy: use " +
			"Redis or Valkey 7 or later with maxmemory-policy noeviction, or allow the user to run INFO")
	}
	return nil
}

// servers are those that keys lie on, and in a cluster their replicas too. One that takes the place of another is asked in its
// place where there are sentinels.
func (c *Cluster) servers() []engine {
	if c.client.mode() != "cluster" {
		return []engine{c.client}
	}
	return c.client.nodes()
}

// ask asks servers what they say of themselves. Of a cluster, those that do not answer are left out: it may do without them.
func (c *Cluster) ask(ctx context.Context, servers []engine) (all []map[string]string, err error) {
	if c.engine.Mode == "cluster" {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, openTimeout/5)
		defer cancel()
	}
	var mu sync.Mutex
	var wg sync.WaitGroup
	for _, server := range servers {
		wg.Go(func() {
			info, wrong := facts(ctx, server)
			mu.Lock()
			defer mu.Unlock()
			if wrong == nil {
				all = append(all, info)
			} else if err == nil {
				err = wrong
			}
		})
	}
	wg.Wait()
	if len(all) > 0 && !isRefusal(err) {
		err = nil
	}
	return all, err
}

// judge refuses a server that is too old, a replica, or forgetful.
func (c *Cluster) judge(info map[string]string) error {
	if c.engine.Mode == "cluster" && info["role"] == "slave" { // its node stands for it
		return nil
	}
	e := &c.engine
	e.Name = cmp.Or(info["server_name"], info["server"], "redis")
	if version := info["valkey_version"]; version != "" {
		e.Name, e.Version = "valkey", version
	} else {
		e.Version = cmp.Or(info["redis_version"], info["version"])
	}
	major, _, _ := strings.Cut(e.Version, ".")
	if n, err := strconv.Atoi(major); err == nil && n < oldest {
		return unfit(fmt.Sprintf("upgrade the server to Redis or Valkey %d or later", oldest),
			"%s %s is too old", e.Name, e.Version)
	}
	if info["role"] == "slave" {
		primary := "its primary"
		if host := info["master_host"]; host != "" {
			primary = net.JoinHostPort(host, cmp.Or(info["master_port"], "6379"))
		}
		return unfit("use the URL of the primary ("+primary+
			"), or of a sentinel: redis://sentinel:26379?master_set=NAME", "the server is a read-only replica")
	}
	if policy := info["maxmemory_policy"]; policy != "" && policy != "noeviction" {
		return unfit("run CONFIG SET maxmemory-policy noeviction on the server (or change the parameter at the hosting provider), or use a separate server for Sluice",
			"its maxmemory-policy is %s: the server would delete quotas and items when its memory is full", policy)
	}
	e.known = e.known && info["aof_enabled"] != ""
	e.Durable = e.Durable && info["aof_enabled"] == "1"
	return nil
}

// facts are what a server says of itself. They are empty where the user may not ask.
func facts(ctx context.Context, node engine) (map[string]string, error) {
	all := make(map[string]string)
	if hello, err := node.do(ctx, "HELLO"); err == nil {
		for _, name := range []string{"server", "version"} {
			all[name] = hello.pairs()[name]
		}
	}
	info, err := node.do(ctx, "INFO")
	if isRefusal(err, "NOPERM", "unknown command") {
		delete(all, "version") // what it forgets is not known either
		return all, nil
	}
	for line := range strings.Lines(info.text) {
		name, value, _ := strings.Cut(strings.TrimSpace(line), ":")
		all[name] = value
	}
	return all, err
}

// Doubts returns warnings about Redis for a batch. Doubts warns if items may not survive a crash of Redis, or if items are sent
// unencrypted.
func (c *Cluster) Doubts() (doubts []string) {
	switch {
	case c.engine.known && !c.engine.Durable:
		doubts = append(doubts, c.String()+" has no append-only file: after a crash of the server, the run adds the unfinished items again"+
			" (CONFIG SET appendonly yes)")
	case !c.engine.known:
		doubts = append(doubts, c.String()+" does not report whether it has an append-only file")
	}
	if c.at.scheme == "redis" && !c.at.near() {
		doubts = append(doubts, "prompts and responses are sent unencrypted to "+c.String()+": use rediss:// unless the network is private")
	}
	return doubts
}

// explain says what went wrong with an engine, and what to do. The error is an *Error.
func (e *endpoint) explain(ctx context.Context, err error) error {
	if wrong, ok := errors.AsType[*Error](err); ok {
		wrong.At = e.String()
		return wrong
	}
	at := &Error{At: e.String(), Err: e.redact(err)}
	if isRefusal(err) {
		e.explainRefusal(at, err)
		return at
	}
	var netErr net.Error
	switch {
	case errors.Is(ctx.Err(), context.Canceled):
		at.Err = ctx.Err()
	case e.explainTLS(at, err):
	case isA[*net.DNSError](err):
		at.Err, at.hint = errors.New("the host name cannot be resolved"), "check the host name in the URL, and the DNS settings of this host"
	case errors.Is(err, syscall.ECONNREFUSED), errors.Is(err, syscall.ENOENT):
		at.Err, at.hint = errors.New("no server listens at this address"), "start Redis, or correct the host and port in the URL"
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF), errors.Is(err, syscall.ECONNRESET), errors.Is(err, syscall.EPIPE):
		at.Err, at.hint = errors.New("the server closed the connection without a response"), "begin the URL with rediss:// if the server needs TLS; otherwise check maxclients, and whether the server is Redis"
		if e.scheme == "rediss" {
			at.hint = "add cert_file=FILE and key_file=FILE to the URL if the server needs a client certificate"
		}
	case errors.As(err, &netErr) && netErr.Timeout(), errors.Is(err, context.DeadlineExceeded), ctx.Err() != nil:
		at.Err, at.hint = fmt.Errorf("no response within %s", dialTimeout), "check the URL and the firewalls"
		if e.scheme == "rediss" {
			at.hint += "; begin the URL with redis:// if the server has no TLS"
		}
	case errors.Is(err, errNoSlot):
		at.Err, at.hint = errors.New("the Redis cluster is down"), "run CLUSTER INFO on a server of the cluster to find the cause"
	case strings.Contains(err.Error(), "unknown message type"):
		at.Err, at.hint = errors.New("the server does not speak the Redis protocol"), "check the port in the URL: a proxy or another kind of server may use this port"
	default:
		at.hint = "check the URL, and whether the server is Redis or Valkey"
	}
	return at
}

// refused is the error of what the engine was asked: explained, if it answered, and else as it is.
func (e *endpoint) refused(ctx context.Context, err error) error {
	if isRefusal(err) {
		return e.explain(ctx, err)
	}
	return fmt.Errorf("engine: %w", err)
}

// explainTLS explains what TLS can meet, and reports whether it was that.
func (e *endpoint) explainTLS(at *Error, err error) bool {
	var alert tls.AlertError
	text := err.Error()
	switch {
	case isA[tls.RecordHeaderError](err):
		at.Err, at.hint = errors.New("the server does not speak TLS"), "begin the URL with redis://, or use the TLS port of the server"
	case isA[x509.HostnameError](err), isA[*x509.HostnameError](err):
		at.hint = "use the host name in the certificate, or add server_name=NAME to the URL"
	case isA[x509.UnknownAuthorityError](err), isA[*tls.CertificateVerificationError](err):
		at.hint = "add ca_file=FILE with the trusted certificates to the URL"
	case errors.As(err, &alert) || strings.Contains(text, "tls: certificate required"), strings.Contains(text, "tls: bad certificate"):
		at.hint = "add cert_file=FILE and key_file=FILE to the URL, because the server needs a client certificate"
	default:
		return false
	}
	return true
}

// permit is the hint for a user that lacks a permission.
const permit = "grant the permissions: ACL SETUSER NAME ~{sluice* &{sluice* +@all -@dangerous +info"

// refusal is an error by which an engine refuses to be used, with what to do.
type refusal struct {
	begin, said, hint string
	settings          bool // need a change
}

var refusals = [...]refusal{
	{"WRONGPASS", "the user or the password is wrong", "check the user in the URL, and the password in the URL or in $" + PasswordVariable, false},
	{"NOAUTH", "the server needs a password", "export " + PasswordVariable + "=..., and add the user to the URL if the server has several users", false},
	{"invalid password", "the password is wrong", "check the password in the URL or in $" + PasswordVariable, false},
	{"NOPERM", "", permit, true},
	{"The user executing the script can't", "", permit, true}, // Redis before 7.2,
	{"ACL failure in script", "", permit, true},               // and later ones, and Valkey
	{"DENIED", "the server accepts only clients on its own host (protected mode)", "set a password on the server, and export it in $" + PasswordVariable, true},
	{"LOADING", "the server is still loading its data from disk", "try again in a moment", false},
	{"MASTERDOWN", "the server is a replica without a connection to its primary", "use the URL of the primary", true},
	{"CLUSTERDOWN", "the Redis cluster is down", "run CLUSTER INFO on a server of the cluster to find the cause", false},
	{"READONLY", "the server is a read-only replica", "use the URL of the primary, or of a sentinel: redis://sentinel:26379?master_set=NAME", true},
	{"NOREPLICAS", "the server rejects writes, because it has too few replicas", "check the option min-replicas-to-write of the server", false},
	{"OOM", "the memory of the server is full", "raise maxmemory on the server, or delete keys", false},
	{"BUSY", "an endless script blocks the server", "run SCRIPT KILL on the server to stop the script", false},
	{"MISCONF", "the server rejects writes, because it cannot save to disk", "check the log of the server, and free disk space", false},
	{"unknown command 'SENTINEL'", "the server is not a sentinel", "use the port of a sentinel, usually 26379, or remove master_set to use the server itself", true},
	{"unknown command 'EVAL'", "the server does not run scripts, and may be a sentinel", "add the name of the monitored server to the URL of a sentinel: redis://sentinel:26379?master_set=NAME", true},
	{"This instance has cluster support disabled", "the server is not a node of a cluster", "remove addr to use one server, or add master_set=NAME to use sentinels", true},
	{"No such master with that name", "the sentinels do not know the server name in master_set", "run SENTINEL MASTERS on a sentinel to list the names", true},
	{"max number of clients", "the server has reached its maximum number of clients", "raise maxclients on the server", false},
	{"DB index is out of range", "the server has no database with this number", "correct the database number at the end of the URL", true},
	{"invalid DB index", "the server has no database with this number", "correct the database number at the end of the URL", true},
	{"SELECT is not allowed", "a Redis cluster has only database 0", "remove the database from the URL", true},
}

// explainRefusal explains what the engine answered.
func (e *endpoint) explainRefusal(at *Error, err error) {
	if isForeign(err) {
		at.Err, at.Settings = errForeign, true
		at.hint = "list the keys with redis-cli --scan --pattern '" + keyPrefix + "*' and delete the keys of other programs, or use " +
			"another database or server for Sluice, such as redis://HOST:6379/1"
		return
	}
	text := err.Error()
	known := refusalOf(text)
	if known == nil {
		at.Err, at.hint = fmt.Errorf("the server responds: %w", at.Err), "check that the server is Redis or Valkey"
		return
	}
	at.hint, at.Settings = known.hint, known.settings
	if e.master != "" && strings.Contains(known.hint, PasswordVariable) {
		at.hint += "; set the password of the sentinels in $" + SentinelPasswordVariable
	}
	at.Err = errors.New(known.said)
	if known.said == "" {
		text = e.redact(err).Error()
		if i := strings.LastIndex(text, " script: "); i >= 0 && strings.Contains(text[i:], "@user_script") {
			text = text[:i] // a number of ours, which means nothing to anybody
		}
		at.Err = fmt.Errorf("the Redis user lacks permissions: %s", text)
	}
}

// refusalOf is what an engine's answer is known as; nil is none.
func refusalOf(answer string) *refusal {
	for i := range refusals {
		if strings.HasPrefix(answer, refusals[i].begin) {
			return &refusals[i]
		}
	}
	return nil
}

// redact returns err without the password, should somebody have put it there.
func (e *endpoint) redact(err error) error {
	text := err.Error()
	for _, secret := range []string{e.password, e.sentinelPassword} {
		if secret != "" {
			text = strings.ReplaceAll(text, secret, "***")
		}
	}
	if text == err.Error() {
		return err
	}
	return errors.New(text)
}

func isA[E error](err error) bool {
	_, ok := errors.AsType[E](err)
	return ok
}
