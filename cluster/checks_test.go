package cluster_test

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"log/slog"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/alicebob/miniredis/v2/server"

	"github.com/sluice-llm/sluice/cluster"
	"github.com/sluice-llm/sluice/limits"
)

func TestOpenSaysWhatIsWrongAndWhatToDo(t *testing.T) {
	plain := newServer(t)
	secret := newServer(t, "--requirepass", "open-sesame-1")
	secret2 := secret.url()
	replica := newServer(t, "--replicaof", "127.0.0.1 "+fmt.Sprint(plain.port))
	forgetful := newServer(t, "--maxmemory", "50mb", "--maxmemory-policy", "volatile-lru")
	full := newServer(t, "--maxmemory", "1")
	limited := newServer(t, "--maxclients", "33")
	limited.do("CONFIG", "SET", "maxclients", "1")
	acl := newServer(t)
	acl.do("ACL", "SETUSER", "narrow", "on", ">narrow-pass-1", "~other*", "+@all")
	acl.do("ACL", "SETUSER", "mute", "on", ">mute-pass-1", "~{sluice*", "resetchannels", "+@all")
	acl.do("ACL", "SETUSER", "tied", "on", ">tied-pass-1", "~*", "&*", "+@all", "-@scripting")
	acl.do("ACL", "SETUSER", "short", "on", ">short-pass-1", "~{sluice*", "&{sluice*", "+@all", "-@dangerous", "+info", "-zadd", "-subscribe")
	watching := newServer(t, "--sentinel", fmt.Sprintf("sentinel monitor main 127.0.0.1 %d 1", plain.port))
	_, gone, _ := net.SplitHostPort(closed(t))
	hung := listener(t, func(net.Conn) {})
	for name, test := range map[string]refusedOpen{
		"no such host":        {cluster.Config{URL: "redis://sluice-test.invalid"}, "the host name cannot be resolved", "check the host name", false},
		"silence":             {cluster.Config{URL: "redis://" + hung}, "no response within 4s", "firewall", false},
		"TLS to plain":        {cluster.Config{URL: "rediss://" + plain.address()}, "no response within", "redis://", false},
		"no password":         {cluster.Config{URL: secret2}, "needs a password", cluster.PasswordVariable, false},
		"wrong password":      {cluster.Config{URL: "redis://:open-sesame-2@" + secret.address()}, "the user or the password is wrong", cluster.PasswordVariable, false},
		"wrong user":          {cluster.Config{URL: "redis://bob@" + secret.address(), Password: "open-sesame-1"}, "the user or the password is wrong", "user in the URL", false},
		"password of another": {cluster.Config{URL: secret2, Password: "open-sesame-2"}, "the user or the password is wrong", "password", false},
		"a replica":           {cluster.Config{URL: replica.url()}, "read-only replica", "use the URL of the primary (127.0.0.1:", true},
		"an evicting policy":  {cluster.Config{URL: forgetful.url()}, "maxmemory-policy is volatile-lru", "CONFIG SET maxmemory-policy noeviction", true},
		"a full memory":       {cluster.Config{URL: full.url()}, "memory of the server is full", "maxmemory", false},
		"too many clients":    {cluster.Config{URL: limited.url()}, "", "maxclients", false},
		"no such database":    {cluster.Config{URL: plain.url() + "/99"}, "no database with this number", "number", true},
		"other keys":          {cluster.Config{URL: "redis://narrow@" + acl.address(), Password: "narrow-pass-1"}, "the Redis user lacks permissions", "ACL SETUSER", true},
		"no channels":         {cluster.Config{URL: "redis://mute@" + acl.address(), Password: "mute-pass-1"}, "the Redis user lacks permissions", "ACL SETUSER", true},
		"no scripts":          {cluster.Config{URL: "redis://tied@" + acl.address(), Password: "tied-pass-1"}, "the Redis user lacks permissions", "ACL SETUSER", true},
		"too few commands":    {cluster.Config{URL: "redis://short@" + acl.address(), Password: "short-pass-1"}, "the Redis user has no permission to run SUBSCRIBE, ZADD", "ACL SETUSER", true},
		"no sentinel":         {cluster.Config{URL: plain.url() + "?master_set=main"}, "the server is not a sentinel", "26379", true},
		"a sentinel":          {cluster.Config{URL: watching.url()}, "may be a sentinel", "master_set=NAME", true},
		"no cluster":          {cluster.Config{URL: plain.url() + "?addr=127.0.0.1:" + gone}, "the server is not a node of a cluster", "remove addr", true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if name == "too many clients" {
				conn, err := net.Dial("tcp", limited.address())
				if err != nil {
					t.Fatal(err)
				}
				defer conn.Close()
				fmt.Fprint(conn, "PING\r\n")
				conn.Read(make([]byte, 7))
			}
			test.check(t)
		})
	}
}

func TestOpenSaysWhyNothingAnswers(t *testing.T) {
	closing := listener(t, func(c net.Conn) { c.Close() })
	web := listener(t, func(c net.Conn) { fmt.Fprint(c, "HTTP/1.1 400 Bad Request\r\n\r\n") })
	_, gone, _ := net.SplitHostPort(closed(t))
	for name, test := range map[string]refusedOpen{
		"nobody":           {cluster.Config{URL: "redis://127.0.0.1:" + gone}, "no server listens at this address", "start Redis", false},
		"no such socket":   {cluster.Config{URL: "unix://" + t.TempDir() + "/none.sock"}, "no server listens at this address", "start Redis", false},
		"a slammed door":   {cluster.Config{URL: "redis://" + closing}, "closed the connection without a response", "rediss://", false},
		"another protocol": {cluster.Config{URL: "redis://" + web}, "does not speak the Redis protocol", "port", false},
		"TLS to another":   {cluster.Config{URL: "rediss://" + web}, "does not speak TLS", "redis://", false},
	} {
		t.Run(name, test.check)
	}
}

// refusedOpen is a Config that Open refuses, and what the error says.
type refusedOpen struct {
	cfg        cluster.Config
	want, hint string
	settings   bool
}

func (o refusedOpen) check(t *testing.T) {
	text, hint, settings := refused(t, o.cfg)
	if !strings.Contains(text, o.want) || !strings.Contains(hint, o.hint) || settings != o.settings {
		t.Errorf("%s (hint: %s, settings %v), want %q, %q, %v", text, hint, settings, o.want, o.hint, o.settings)
	}
	for _, password := range []string{"open-sesame", "-pass-1"} {
		if strings.Contains(text+hint, password) {
			t.Errorf("the password is in %q", text+hint)
		}
	}
}

// Who lacks a command that only a batch needs may share quotas, and is told at once when a batch begins.
func TestWhatABatchNeedsIsLookedAtWhenItBegins(t *testing.T) {
	s := newServer(t)
	usual := []string{"on", ">some-pass-1", "~{sluice*", "&{sluice*", "+@all", "-@dangerous", "+info"}
	s.do(append([]string{"ACL", "SETUSER", "whole"}, usual...)...)
	s.do(append([]string{"ACL", "SETUSER", "quotas"}, append(usual, "-xadd", "-xgroup|create")...)...)
	c := connect(t, cluster.Config{URL: "redis://whole@" + s.address(), Password: "some-pass-1"})
	collect(t, c, cluster.JobConfig{Name: "job"})
	work(t, c)
	c = connect(t, cluster.Config{URL: "redis://quotas@" + s.address(), Password: "some-pass-1"})
	_, collects := c.Collect(t.Context(), cluster.JobConfig{Name: "other"})
	_, works := c.Work(t.Context())
	for _, err := range []error{collects, works} {
		wrong, ok := errors.AsType[*cluster.Error](err)
		if !ok || !wrong.Settings || !strings.Contains(err.Error(), "no permission to run XADD, XGROUP CREATE") || !strings.Contains(wrong.Hint(), "ACL SETUSER") {
			t.Errorf("%v", err)
		}
	}
}

// oldServer answers as a server of another version.
func oldServer(t *testing.T, info string) string {
	m := miniredis.RunT(t)
	m.Server().SetPreHook(func(c *server.Peer, cmd string, _ ...string) bool {
		if cmd == "INFO" {
			c.WriteBulk(info)
		}
		return cmd == "INFO"
	})
	return "redis://" + m.Addr()
}

func TestVersionsBeforeSevenAreRefused(t *testing.T) {
	for _, test := range []struct{ info, refused, name, version string }{
		{"redis_version:6.2.14\r\n", "redis 6.2.14 is too old", "", ""},
		{"redis_version:5.0.7\r\nrole:master\r\n", "redis 5.0.7 is too old", "", ""},
		{"redis_version:7.0.0\r\nrole:master\r\nmaxmemory_policy:noeviction\r\n", "", "redis", "7.0.0"},
		{"redis_version:10.1.0\r\n", "", "redis", "10.1.0"},
		{"redis_version:7.2.4\r\nserver_name:valkey\r\nvalkey_version:8.1.0\r\n", "", "valkey", "8.1.0"},
		{"redis_version:7.2.4\r\nserver_name:valkey\r\nvalkey_version:7.2.5\r\n", "", "valkey", "7.2.5"},
		{"redis_version:6.2.14\r\nvalkey_version:7.2.5\r\n", "", "valkey", "7.2.5"},
		{"redis_version:7.2.4\r\nrole:slave\r\nmaster_host:10.0.0.1\r\n", "read-only replica", "", ""},
		{"redis_version:7.2.4\r\nmaxmemory_policy:allkeys-lfu\r\n", "its maxmemory-policy is allkeys-lfu", "", ""},
	} {
		url := oldServer(t, test.info)
		if test.refused != "" {
			if text, hint, settings := refused(t, cluster.Config{URL: url}); !strings.Contains(text, test.refused) || hint == "" || !settings {
				t.Errorf("%q: %s (hint %q, settings %v)", test.info, text, hint, settings)
			}
			continue
		}
		c := connect(t, cluster.Config{URL: url})
		if e := c.Engine(); !strings.HasPrefix(e.Name, test.name) && e.Name != "miniredis" || e.Version != test.version || e.Mode != "standalone" {
			t.Errorf("%q: %+v", test.info, e)
		}
	}
}

func TestWhatTheUserMayNotAskIsWarnedOf(t *testing.T) {
	s := newServer(t)
	s.do("ACL", "SETUSER", "sluice", "on", ">a-pass-word-1", "~{sluice*", "&{sluice*", "+@all", "-@dangerous")
	var log bytes.Buffer
	cfg := cluster.Config{URL: "redis://sluice@" + s.address(), Password: "a-pass-word-1", Logger: slog.New(slog.NewTextHandler(&log, nil))}
	c := connect(t, cfg)
	if !strings.Contains(log.String(), "maxmemory-policy noeviction") || strings.Contains(log.String(), "a-pass-word-1") {
		t.Errorf("the log is %q", log.String())
	}
	if c.Engine().Version != "" || len(c.Doubts()) != 1 || !strings.Contains(c.Doubts()[0], "does not report whether") {
		t.Errorf("%+v, doubts %q", c.Engine(), c.Doubts())
	}
	log.Reset()
	s.do("ACL", "SETUSER", "sluice", "+info")
	if c = connect(t, cfg); log.Len() > 0 || c.Engine().Version == "" {
		t.Errorf("with +info: %+v, and the log is %q", c.Engine(), log.String())
	}
}

// TestTheUserThatTheHintNamesMayDoAllThatIsNeeded has the engine say what it refused: most of it is tried again in silence.
func TestTheUserThatTheHintNamesMayDoAllThatIsNeeded(t *testing.T) {
	s := newServer(t)
	s.do("ACL", "SETUSER", "mute", "on", ">mute-pass-1", "nocommands")
	_, hint, _ := refused(t, cluster.Config{URL: "redis://mute@" + s.address(), Password: "mute-pass-1"})
	_, rules, _ := strings.Cut(hint, "ACL SETUSER NAME ")
	s.do(append([]string{"ACL", "SETUSER", "sluice", "on", ">a-pass-word-1"}, strings.Fields(rules)...)...)
	s.do("ACL", "LOG", "RESET")
	url := "redis://sluice:a-pass-word-1@" + s.address()
	c := connect(t, cluster.Config{URL: url})
	c.Join(t.Name())
	caller := &caller{t: t, l: c.Ledger(t.Name(), cluster.LedgerConfig{})}
	defer caller.l.Close()
	caller.correct(slots(1, 0), limits.Correction{Lane: "m", Pause: limits.Pause{Epoch: 1, Left: time.Millisecond}})
	caller.until(1)
	w, k := work(t, c), collect(t, c, cluster.JobConfig{Name: t.Name()})
	add(t, k, 1)
	complete(t, w, next(t, w), "")
	outcomes(t, k, 1)
	finish(t, k)
	if _, err := c.Status(t.Context()); err != nil {
		t.Error(err)
	}
	client := dial(t, s.address())
	if log, err := client.Do(t.Context(), client.B().Arbitrary("ACL", "LOG").Build()).ToArray(); err != nil || len(log) > 0 {
		t.Errorf("the engine refused: %v, %v", log, err)
	}
}

func TestABatchIsDoubtedWhereItsItemsAreLostOrRead(t *testing.T) {
	host := otherAddress(t)
	s := newServer(t, "--appendonly", "no", "--protected-mode", "no", "--bind", "0.0.0.0")
	kept := newServer(t, "--appendonly", "yes")
	for url, want := range map[string][]string{
		s.url():    {"no append-only file"},
		kept.url(): nil,
		fmt.Sprintf("redis://%s:%d", host, s.port): {"no append-only file", "unencrypted"},
	} {
		doubts := connect(t, cluster.Config{URL: url}).Doubts()
		if len(doubts) != len(want) {
			t.Errorf("%s: %q, want %q", url, doubts, want)
			continue
		}
		for i := range want {
			if !strings.Contains(doubts[i], want[i]) {
				t.Errorf("%s: %q, want %q", url, doubts[i], want[i])
			}
		}
	}
}

// otherAddress is an address of this host by which others reach it.
func otherAddress(t *testing.T) string {
	addresses, err := net.InterfaceAddrs()
	if err != nil {
		t.Fatal(err)
	}
	for _, a := range addresses {
		if ip, ok := a.(*net.IPNet); ok && !ip.IP.IsLoopback() && ip.IP.To4() != nil {
			return ip.IP.String()
		}
	}
	t.Skip("this host has no address but loopback")
	return ""
}

func TestOpenEndsWithItsContext(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	hung := listener(t, func(net.Conn) { cancel() })
	if _, err := cluster.Open(ctx, cluster.Config{URL: "redis://" + hung}); !errors.Is(err, context.Canceled) {
		t.Errorf("%v, want %v", err, context.Canceled)
	}
	ctx, cancel = context.WithCancel(t.Context())
	hung = listener(t, func(net.Conn) { cancel() })
	var timedOut net.Error
	if err := cluster.Dial(ctx, "redis://"+hung); err == nil || errors.As(err, &timedOut) && timedOut.Timeout() {
		t.Errorf("%v, want the error of a connection that was closed", err)
	}
}

func TestASocketOfThisHost(t *testing.T) {
	path := filepath.Join(t.TempDir(), "r.sock")
	s := newServer(t, "--unixsocket", path)
	c := connect(t, cluster.Config{URL: "unix://" + path + "?db=3"})
	if e := c.Engine(); e.Mode != "standalone" || e.Name != "redis" && e.Name != "valkey" {
		t.Errorf("%+v", e)
	}
	if keys := s.do("INFO", "keyspace"); !strings.Contains(keys, "db3:") {
		t.Errorf("nothing was written to database 3: %q", keys)
	}
}

func TestTLS(t *testing.T) {
	dir := t.TempDir()
	ca := newAuthority(t, dir)
	cert, key := ca.issue(t, dir, "server", "localhost")
	own, ownKey := ca.issue(t, dir, "client", "client")
	settings := []string{"--port", "0", "--tls-cert-file", cert, "--tls-key-file", key, "--tls-ca-cert-file", ca.file}
	port := freePort(t)
	if !speaksTLS(t) {
		t.Skip("this redis-server was built without TLS")
	}
	strict := startServer(t, port, append(settings, "--tls-port", fmt.Sprint(port))...)
	port = freePort(t)
	trusting := startServer(t, port, append(settings, "--tls-port", fmt.Sprint(port), "--tls-auth-clients", "no")...)
	at := func(s *realServer, host, options string) cluster.Config {
		return cluster.Config{URL: fmt.Sprintf("rediss://%s:%d?%s", host, s.port, options)}
	}
	other := newAuthority(t, t.TempDir())
	for _, test := range []struct {
		name       string
		cfg        cluster.Config
		want, hint string
	}{
		{"strangers are not trusted", at(trusting, "localhost", ""), "certificate signed by unknown authority", "ca_file=FILE"},
		{"nor those of another authority", at(trusting, "localhost", "ca_file="+other.file), "unknown authority", "ca_file=FILE"},
		{"the name has to fit", at(trusting, "127.0.0.1", "ca_file="+ca.file), "127.0.0.1", "server_name=NAME"},
		{"plain is refused", cluster.Config{URL: trusting.url()}, "closed the connection", "rediss://"},
		{"a client without certificate is refused", at(strict, "localhost", "ca_file="+ca.file), "", "cert_file=FILE"},
	} {
		t.Run(test.name, func(t *testing.T) {
			if text, hint, _ := refused(t, test.cfg); !strings.Contains(text, test.want) || !strings.Contains(hint, test.hint) {
				t.Errorf("%s (hint: %s), want %q, %q", text, hint, test.want, test.hint)
			}
		})
	}
	connect(t, at(trusting, "localhost", "ca_file="+ca.file))
	connect(t, at(trusting, "127.0.0.1", "server_name=localhost&ca_file="+ca.file))
	connect(t, at(strict, "localhost", "ca_file="+ca.file+"&cert_file="+own+"&key_file="+ownKey))
	var log bytes.Buffer
	cfg := at(trusting, "127.0.0.1", "insecure=true")
	cfg.Logger = slog.New(slog.NewTextHandler(&log, nil))
	c := connect(t, cfg)
	if !strings.Contains(log.String(), "insecure=true: the certificate of rediss://127.0.0.1") {
		t.Errorf("insecure is silent: %q", log.String())
	}
	for _, doubt := range c.Doubts() {
		if strings.Contains(doubt, "unencrypted") {
			t.Errorf("with TLS: %s", doubt)
		}
	}
}

// speaksTLS reports whether the redis-server that is installed was built with TLS.
func speaksTLS(t *testing.T) bool {
	client := dial(t, newServer(t).address())
	settings, err := client.Do(t.Context(), client.B().ConfigGet().Parameter("tls-port").Build()).AsStrMap()
	return err == nil && len(settings) > 0
}

// authority issues certificates.
type authority struct {
	file string
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

func newAuthority(t *testing.T, dir string) *authority {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	a := &authority{file: filepath.Join(dir, "ca.pem"), key: key}
	a.cert = &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "authority"}, NotBefore: time.Now().Add(-time.Hour),
		NotAfter: time.Now().Add(time.Hour), IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	}
	der, err := x509.CreateCertificate(rand.Reader, a.cert, a.cert, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	writePEM(t, a.file, "CERTIFICATE", der)
	return a
}

func (a *authority) issue(t *testing.T, dir, file, host string) (certFile, keyFile string) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	cert := &x509.Certificate{
		SerialNumber: big.NewInt(time.Now().UnixNano()), Subject: pkix.Name{CommonName: host}, DNSNames: []string{host},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
	}
	der, err := x509.CreateCertificate(rand.Reader, cert, a.cert, &key.PublicKey, a.key)
	if err != nil {
		t.Fatal(err)
	}
	private, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	certFile, keyFile = filepath.Join(dir, file+".crt"), filepath.Join(dir, file+".key")
	writePEM(t, certFile, "CERTIFICATE", der)
	writePEM(t, keyFile, "PRIVATE KEY", private)
	return certFile, keyFile
}

func writePEM(t *testing.T, file, kind string, der []byte) {
	if err := os.WriteFile(file, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}), 0o600); err != nil {
		t.Fatal(err)
	}
}

// listener serves connections, after the first bytes of each, and returns its address. They stay open until the test ends.
func listener(t *testing.T, serve func(net.Conn)) string {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	t.Cleanup(func() {
		l.Close()
		<-done
	})
	go func() {
		defer close(done)
		var conns []net.Conn
		for {
			conn, err := l.Accept()
			if err != nil {
				break
			}
			conns = append(conns, conn)
			conn.Read(make([]byte, 1))
			serve(conn)
		}
		for _, conn := range conns {
			conn.Close()
		}
	}()
	return l.Addr().String()
}

// closed returns an address where nobody listens.
func closed(t *testing.T) string { return fmt.Sprintf("127.0.0.1:%d", freePort(t)) }
