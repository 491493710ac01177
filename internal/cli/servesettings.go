package cli

import (
	"cmp"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/sluice-llm/sluice/cluster"
	"github.com/sluice-llm/sluice/gateway"
	"github.com/sluice-llm/sluice/internal/account"
	"github.com/sluice-llm/sluice/internal/config"
	"github.com/sluice-llm/sluice/internal/fault"
)

// serveSettings are what a gateway is told, by flags and by a file.
type serveSettings struct {
	listen    string
	hosts     []string
	models    map[string]string
	deadlines gateway.Deadlines
	maxBodies int64         // bytes; 0 is the default
	early     time.Duration // 0 is never
	passed    []gateway.Passthrough
	drain     time.Duration
	watch     watchFlags

	tenants []gateway.Tenant

	access string // log of requests

	redis      string // URL of the Redis that shares limits; "" is none
	failClosed bool

	filed []string // fields that the file has, and that no flag won over
}

// settings are those of the flags over those of the file.
func (o *serveOptions) settings(from *account.Settings) (serveSettings, error) {
	all, file := o.told, cmp.Or(from.File.Serve, &config.Serve{})
	all.models, all.failClosed = file.Models, file.FailClosed
	all.deadlines.FirstByte, all.deadlines.Idle, all.deadlines.Total = time.Duration(file.FirstByteTimeout), time.Duration(file.IdleTimeout), time.Duration(file.TotalTimeout)
	for _, p := range file.Passthrough {
		all.passed = append(all.passed, gateway.Passthrough(p))
	}
	for _, t := range file.Tenants {
		all.tenants = append(all.tenants, t.Tenant)
	}
	all.maxBodies, all.early = int64(file.MaxBodyMemory), time.Duration(file.Early200)
	for _, f := range []struct {
		flag, field string
		stated      bool
		take        func()
	}{
		{"listen", "listen", file.Listen != "", func() { all.listen = file.Listen }},
		{"allow-host", "allow_host", file.Hosts != nil, func() { all.hosts = file.Hosts }},
		{"queue-timeout", "queue_timeout", file.QueueTimeout != 0, func() { all.deadlines.Queue = time.Duration(file.QueueTimeout) }},
		{"drain-timeout", "drain_timeout", file.DrainTimeout != 0, func() { all.drain = time.Duration(file.DrainTimeout) }},
		{"metrics", "metrics", file.Metrics != "", func() { all.watch.metrics = file.Metrics }},
		{"access-log", "access_log", file.AccessLog != "", func() { all.access = from.Beside("serve.access_log", file.AccessLog) }},
		{"events", "events", file.Events != "", func() { all.watch.events = from.Beside("serve.events", file.Events) }},
		{"redis", "redis", file.Redis != "", func() { all.redis = file.Redis }},
	} {
		switch {
		case f.stated && o.given(f.flag):
			from.Note(fmt.Sprintf("--%s overrides serve.%s of %s", f.flag, f.field, from.File.NameOf("serve."+f.field)))
		case f.stated:
			f.take()
			all.filed = append(all.filed, f.field)
		}
	}
	if all.watch.metrics == all.listen && !strings.HasSuffix(all.listen, ":0") && o.setsMetrics(&all) {
		return all, fault.New(fault.Conflict, fmt.Errorf("--listen and --metrics are the same address %s", all.listen), "use different addresses")
	}
	return all, all.check(from)
}

// setsMetrics reports whether a flag or the file chose the address of metrics.
func (o *serveOptions) setsMetrics(s *serveSettings) bool {
	return o.given("metrics") || slices.Contains(s.filed, "metrics")
}

// names are those by which the gateway may be addressed: the hosts, and the one at which it listens.
func (s *serveSettings) addresses() []string {
	host, _, err := net.SplitHostPort(s.listen)
	if ip := net.ParseIP(host); err != nil || host == "" || ip != nil && ip.IsUnspecified() {
		return s.hosts
	}
	return append(slices.Clip(s.hosts), host)
}

// dashboard reports whether the page at /ui can be looked at: it answers this host only.
func (s *serveSettings) dashboard() bool {
	host, _, err := net.SplitHostPort(s.watch.metrics)
	ip := net.ParseIP(host)
	return err == nil && (host == "" || host == "localhost" || ip != nil && (ip.IsLoopback() || ip.IsUnspecified()))
}

// check refuses what can be seen to be wrong before anything is opened.
func (s *serveSettings) check(from *account.Settings) error {
	file := &from.File
	if s.deadlines.Queue <= 0 || s.drain < 0 {
		return fault.New(fault.Value, errors.New("--queue-timeout must be above zero, and --drain-timeout zero or more"), "use a time such as --queue-timeout 5m")
	}
	if s.watch.metrics == "none" {
		s.watch.metrics = ""
	}
	if s.watch.metrics != "" {
		if err := checkMetricsAddress(s.watch.metrics); err != nil { // a file's was looked at
			return err
		}
	}
	if err := cluster.CheckURL(s.redis); s.redis != "" && err != nil { // a file's was looked at
		return account.RedisError(err, "--redis")
	}
	for _, host := range s.hosts { // the file was checked
		if err := config.CheckHost(host); err != nil {
			return fault.New(fault.Value, fmt.Errorf("--allow-host %s: %w", host, err), "write a host name, with or without a port: --allow-host gateway.example.com")
		}
	}
	if config.CheckAddress(s.listen) != nil {
		return fault.New(fault.Value, fmt.Errorf("--listen %s is not an address", s.listen), "use a host and a port, for example --listen 127.0.0.1:8787")
	}
	host, _, _ := net.SplitHostPort(s.listen)
	if ip := net.ParseIP(host); len(s.tenants) == 0 && (host == "" || ip != nil && !ip.IsLoopback()) {
		return openToOthers(file, s.listen)
	}
	if len(s.tenants) > 0 && account.StateDir() == "" {
		return fault.New(fault.Settings, file.At("serve.tenants", errors.New("spending caps need a state directory")), "set XDG_STATE_HOME to a directory")
	}
	return cmp.Or(s.watch.check(), s.checkFiles(from))
}

// checkFiles refuses files that cannot be written, or that would overwrite each other or one that is read.
func (s *serveSettings) checkFiles(from *account.Settings) error {
	var named []namedFile
	for name := range from.Files {
		named = append(named, namedFile{what: "the settings", path: name})
	}
	for _, up := range from.File.Upstreams {
		if up.KeyFile != "" {
			named = append(named, namedFile{what: "key_file of upstream " + up.Name, path: from.Beside("upstreams", up.KeyFile)})
		}
	}
	for _, written := range [...]struct{ flag, field, name string }{{"--access-log", "access_log", s.access}, {"--events", "events", s.watch.events}} {
		named = append(named, namedFile{written.field, written.name, true})
		if written.name == "" || written.name == "-" {
			continue
		}
		if info, err := os.Stat(filepath.Dir(written.name)); err != nil || !info.IsDir() {
			return fault.New(fault.File, s.fault(&from.File, written.flag+" "+written.name, written.field, errors.New("the directory does not exist")),
				"create the directory, or use a file in an existing one")
		}
	}
	return checkApart(named, named[len(named)-2:])
}

// fault says where what is wrong was told: by the file, or by a flag.
func (s *serveSettings) fault(file *config.File, flag, field string, err error) error {
	if slices.Contains(s.filed, field) {
		return file.At("serve."+field, err)
	}
	return fmt.Errorf("%s: %w", flag, err)
}

// openToOthers refuses an address that others can reach.
func openToOthers(file *config.File, address string) error {
	err := fmt.Errorf("--listen %s may be reachable for others, who would need no key", address)
	if file.Serve != nil && file.Serve.Listen == address {
		err = file.At("serve.listen", fmt.Errorf("%s may be reachable for others, who would need no key", address))
	}
	return fault.New(fault.Value, err, "add tenants with `sluice serve key NAME`, or listen only on this host with --listen 127.0.0.1:8787")
}
