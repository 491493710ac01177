package cluster

import (
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/url"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/redis/rueidis"
)

// Names of environment variables. Programs read passwords from them, and hints in errors mention them.
const (
	PasswordVariable         = "SLUICE_REDIS_PASSWORD"    // Config.Password
	SentinelPasswordVariable = "SLUICE_SENTINEL_PASSWORD" // Config.SentinelPassword
)

const (
	usualPort     = "6379"
	sentinelPort  = "26379"
	refreshMaster = 5 * time.Second // asks the sentinels whether the server is another: an announcement may be lost
)

// endpoint is what a URL says.
type endpoint struct {
	scheme    string // redis, rediss or unix
	addresses []string
	user      string
	password  string
	database  int
	master    string // "" is no sentinels

	sentinelUser     string
	sentinelPassword string

	caFile, certFile, keyFile, serverName string
	insecure                              bool
}

// Redact returns a URL with *** in place of its password, even if the URL is invalid.
func Redact(text string) string {
	at := strings.LastIndex(text, "@")
	if at < 0 {
		return text
	}
	scheme, user, ok := strings.Cut(text[:at], "://")
	if !ok {
		return "***" + text[at:]
	}
	name, _, has := strings.Cut(user, ":")
	if !has {
		return text
	}
	return scheme + "://" + name + ":***" + text[at:]
}

// CheckURL returns an *Error if Open would reject the URL. CheckURL does not connect.
func CheckURL(text string) error {
	_, err := parseURL(text)
	return err
}

// Password returns the password in a URL, or "" if the URL contains no password or is invalid.
func Password(text string) string {
	e, _ := parseURL(text)
	return e.password
}

// form is the hint for a URL that is none. Nothing of such a URL is quoted: what is where the port should be may be a password.
const form = "write redis://user@host:6379/0, or rediss:// for TLS, and export the password in $" + PasswordVariable

// parseURL reads a URL. The error is an *Error, which quotes no part of it that could be a password.
func parseURL(text string) (e endpoint, err error) {
	u, err := url.Parse(text)
	if err != nil || u.Opaque != "" || u.Fragment != "" || strings.Contains(u.RawQuery, "@") { // the rest of a password
		return e, wrongURL(errors.New("the URL is invalid"), form)
	}
	switch u.Scheme {
	case "redis", "valkey":
		e.scheme = "redis"
	case "rediss", "valkeys":
		e.scheme = "rediss"
	case "unix":
		e.scheme = "unix"
	default:
		return e, wrongURL(errors.New("the URL does not begin with redis://, rediss:// or unix://"), form)
	}
	e.user = u.User.Username()
	e.password, _ = u.User.Password()
	options, err := url.ParseQuery(u.RawQuery)
	if err != nil {
		return e, wrongURL(errors.New("the options after the ? in the URL are invalid"), form)
	}
	if err := e.takeOptions(options); err != nil {
		return e, err
	}
	if e.scheme == "unix" {
		return e, e.takeSocket(u, options)
	}
	return e, e.takeHosts(u, options)
}

// takeOptions takes what stands behind the question mark, but for addresses and the database.
func (e *endpoint) takeOptions(options url.Values) error {
	names := map[string]*string{"master_set": &e.master, "sentinel_user": &e.sentinelUser}
	secure := map[string]*string{"ca_file": &e.caFile, "cert_file": &e.certFile, "key_file": &e.keyFile, "server_name": &e.serverName}
	for _, name := range slices.Sorted(maps.Keys(options)) { // of several that are wrong the same is named each time
		values := options[name]
		field, known := names[name]
		if field == nil {
			field, known = secure[name]
		}
		switch {
		case name == "addr" || name == "db" && e.scheme == "unix":
			continue
		case len(values) > 1:
			return wrongURL(fmt.Errorf("the URL contains the option %s twice", name), "write it once")
		case name == "insecure":
			var err error
			if e.insecure, err = strconv.ParseBool(values[0]); err != nil {
				return wrongURL(errors.New("insecure must be true or false"), "remove the option insecure to verify certificates")
			}
		case !known:
			return wrongURL(fmt.Errorf("the URL has the unknown option %q", name),
				"use only addr, master_set, sentinel_user, ca_file, cert_file, key_file, server_name and insecure")
		default:
			*field = values[0]
		}
		if (secure[name] != nil || name == "insecure") && e.scheme != "rediss" {
			return wrongURL(fmt.Errorf("%s is an option for TLS, but the URL does not begin with rediss://", name), "begin the URL with rediss://")
		}
	}
	switch {
	case (e.certFile == "") != (e.keyFile == ""):
		return wrongURL(errors.New("only one of cert_file and key_file is set"), "set both cert_file and key_file in the URL, or neither")
	case e.sentinelUser != "" && e.master == "":
		return wrongURL(errors.New("sentinel_user is set, but master_set is missing"), "add master_set=NAME with the name of the server that the sentinels monitor")
	}
	return nil
}

// takeSocket takes what is of a socket of this host.
func (e *endpoint) takeSocket(u *url.URL, options url.Values) error {
	if u.Host != "" || u.Path == "" || options.Has("addr") || e.master != "" {
		return wrongURL(errors.New("a unix:// URL may contain only the path of a socket"), "write unix:///path/to/redis.sock")
	}
	e.addresses = []string{u.Path}
	if options.Has("db") {
		return e.takeDatabase(options.Get("db"))
	}
	return nil
}

// takeHosts takes the addresses and the database.
func (e *endpoint) takeHosts(u *url.URL, options url.Values) error {
	if err := e.takeDatabase(strings.TrimPrefix(u.Path, "/")); err != nil {
		return err
	}
	port := usualPort
	if e.master != "" {
		port = sentinelPort
	}
	for _, text := range slices.Concat([]string{u.Host}, options["addr"]) {
		one := url.URL{Host: text}
		n, err := strconv.ParseUint(cmp.Or(one.Port(), port), 10, 16)
		if err != nil || n == 0 || one.Hostname() == "" || strings.ContainsAny(text, "/@?# ") {
			return wrongURL(errors.New("the URL has an address that is not host:port"), form)
		}
		e.addresses = append(e.addresses, net.JoinHostPort(one.Hostname(), cmp.Or(one.Port(), port)))
	}
	return nil
}

func (e *endpoint) takeDatabase(text string) error {
	if text == "" {
		return nil
	}
	n, err := strconv.ParseUint(text, 10, 16)
	if err != nil { // it may be the rest of a password
		return wrongURL(errors.New("the path of the URL is not a database number"), form)
	}
	e.database = int(n)
	return nil
}

// String is the URL without password and options.
func (e *endpoint) String() string {
	user := ""
	if e.user != "" {
		user = url.User(e.user).String() + "@"
	}
	if e.scheme == "unix" {
		return "unix://" + user + e.addresses[0]
	}
	text := e.scheme + "://" + user + strings.Join(e.addresses, ",")
	if e.database != 0 {
		text += "/" + strconv.Itoa(e.database)
	}
	return text
}

// near reports whether nobody beside this host sees what is sent.
func (e *endpoint) near() bool {
	return e.scheme == "unix" || !slices.ContainsFunc(e.addresses, func(address string) bool {
		host, _, _ := net.SplitHostPort(address)
		ip := net.ParseIP(host)
		return host != "localhost" && (ip == nil || !ip.IsLoopback())
	})
}

// option is what the client is told. The error is an *Error.
func (e *endpoint) option() (rueidis.ClientOption, error) {
	o := rueidis.ClientOption{
		InitAddress: e.addresses, Username: e.user, Password: e.password, SelectDB: e.database,
		Dialer: net.Dialer{Timeout: dialTimeout}, DisableCache: true,
	}
	if e.scheme == "rediss" {
		var err error
		if o.TLSConfig, err = e.tls(); err != nil {
			return o, err
		}
	}
	if e.master != "" {
		o.Sentinel = rueidis.SentinelOption{
			MasterSet: e.master, Username: e.sentinelUser, Password: e.sentinelPassword, Dialer: o.Dialer, TLSConfig: o.TLSConfig,
			TopologyRefreshInterval: refreshMaster,
		}
	}
	return o, nil
}

func (e *endpoint) tls() (*tls.Config, error) {
	t := &tls.Config{MinVersion: tls.VersionTLS12, ServerName: e.serverName, InsecureSkipVerify: e.insecure}
	if e.caFile != "" {
		pem, err := os.ReadFile(e.caFile)
		if err != nil {
			return nil, wrongURL(fmt.Errorf("ca_file: %w", err), "set ca_file to a readable file")
		}
		t.RootCAs = x509.NewCertPool()
		if !t.RootCAs.AppendCertsFromPEM(pem) {
			return nil, wrongURL(fmt.Errorf("ca_file: %s contains no certificate", e.caFile), "set ca_file to a file of certificates in PEM format")
		}
	}
	if e.certFile != "" {
		own, err := tls.LoadX509KeyPair(e.certFile, e.keyFile)
		if err != nil {
			return nil, wrongURL(fmt.Errorf("cert_file and key_file: %w", err), "set cert_file to a certificate and key_file to its key, both in PEM format")
		}
		t.Certificates = []tls.Certificate{own}
	}
	return t, nil
}

// opening closes what was dialled when a context ends, until the client is there: to that one no context can be given.
type opening struct {
	mu    sync.Mutex
	over  bool
	conns []net.Conn
}

// dial connects.
func dial(ctx context.Context, o rueidis.ClientOption) (rueidis.Client, error) {
	var opening opening
	network := "tcp"
	if len(o.InitAddress) == 1 && strings.HasPrefix(o.InitAddress[0], "/") {
		network = "unix"
	}
	o.DialCtxFn = func(dialCtx context.Context, address string, d *net.Dialer, t *tls.Config) (net.Conn, error) {
		var conn net.Conn
		var err error
		if t != nil {
			conn, err = (&tls.Dialer{NetDialer: d, Config: t}).DialContext(dialCtx, network, address)
		} else {
			conn, err = d.DialContext(dialCtx, network, address)
		}
		if err == nil {
			opening.add(ctx, conn)
		}
		return conn, err
	}
	stop := context.AfterFunc(ctx, opening.abandon)
	client, err := rueidis.NewClient(o)
	if !stop() && err == nil { // the connections are closed, or about to be
		client.Close()
		return nil, context.Cause(ctx)
	}
	opening.end()
	return client, err
}

func (o *opening) add(ctx context.Context, conn net.Conn) {
	o.mu.Lock()
	defer o.mu.Unlock()
	switch {
	case o.over:
	case ctx.Err() != nil:
		conn.Close()
	default:
		o.conns = append(o.conns, conn)
	}
}

func (o *opening) abandon() {
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, conn := range o.conns {
		conn.Close()
	}
	o.conns = nil
}

func (o *opening) end() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.over, o.conns = true, nil
}
