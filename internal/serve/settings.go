package serve

import (
	"cmp"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"github.com/sluice-llm/sluice/cluster"
	"github.com/sluice-llm/sluice/internal/account"
	"github.com/sluice-llm/sluice/internal/config"
	"github.com/sluice-llm/sluice/internal/fault"
	"github.com/sluice-llm/sluice/internal/regular"
)

// settings are the settings of the files, with flags in place of the fields that a flag sets or that no file has.
type settings struct {
	config.Serve
	from  *account.Settings
	given func(flag string) bool
	filed []string // fields that the files set
}

// field is a field of config.Serve. If a flag has its name, the flag takes precedence.
type field struct {
	name          string // in files; in the name of a flag, hyphens replace underscores
	at            int
	fixed, output bool
}

// fields returns all fields.
func fields() (all []field) {
	t := reflect.TypeFor[config.Serve]()
	for at := range t.NumField() {
		tag := t.Field(at).Tag
		name, _, _ := strings.Cut(tag.Get("yaml"), ",")
		all = append(all, field{name, at, tag.Get("fixed") != "", tag.Get("output") != ""})
	}
	return all
}

// of returns the field of s.
func (f *field) of(s *config.Serve) reflect.Value { return reflect.ValueOf(s).Elem().Field(f.at) }

// flagOf returns the flag of a field.
func flagOf(name string) string { return strings.ReplaceAll(name, "_", "-") }

// merge returns the settings of files and flags, after checks.
func merge(cfg *Config, from *account.Settings) (*settings, error) {
	s := &settings{Serve: *cmp.Or(from.File.Serve, &config.Serve{}), from: from, given: cfg.Given}
	for _, f := range fields() {
		value, flag, path := f.of(&s.Serve), flagOf(f.name), "serve."+f.name
		switch filed := !value.IsZero(); {
		case !filed:
			value.Set(f.of(&cfg.Flags))
		case cfg.Given(flag):
			from.Log.Info(fmt.Sprintf("--%s overrides %s of %s", flag, path, from.File.NameOf(path)))
			value.Set(f.of(&cfg.Flags))
		default:
			s.filed = append(s.filed, f.name)
			if f.output {
				value.SetString(from.Beside(path, value.String()))
			}
		}
	}
	if s.Metrics == "none" {
		s.Metrics = ""
	}
	return s, cmp.Or(s.check(), s.checkFiles())
}

// keep replaces fields that only a restart changes by the values that apply now, and warns of each.
func (s *settings) keep(now *settings, log *slog.Logger) {
	for _, f := range fields() {
		old, changed := f.of(&now.Serve), f.of(&s.Serve)
		if !f.fixed || old.Equal(changed) {
			continue
		}
		text := fmt.Sprint(old)
		if old.Kind() == reflect.String {
			text = strconv.Quote(cluster.Redact(text))
		}
		log.Warn(fmt.Sprintf("the new serve.%s applies after a restart: until then, the value is %s", f.name, text))
		changed.Set(old)
	}
}

// chosen reports whether a flag or a file sets a field.
func (s *settings) chosen(name string) bool {
	return s.given(flagOf(name)) || slices.Contains(s.filed, name)
}

// wrong returns an error about a field. The text starts with the value.
func (s *settings) wrong(name, text string) error {
	if slices.Contains(s.filed, name) {
		return s.from.File.At("serve."+name, errors.New(text))
	}
	return fmt.Errorf("--%s %s", flagOf(name), text)
}

// hosts returns the names by which clients may address the gateway.
func (s *settings) hosts() []string {
	host, _, err := net.SplitHostPort(s.Listen)
	if err != nil || host == "" || net.ParseIP(host).IsUnspecified() {
		return s.Hosts
	}
	return append(slices.Clip(s.Hosts), host)
}

// check refuses invalid settings. Fields of files were checked when they were read.
func (s *settings) check() error {
	if err := cmp.Or(config.CheckMetrics(s.Metrics), config.CheckEvents(s.Events)); err != nil {
		return err
	}
	host, port, _ := net.SplitHostPort(s.Listen)
	switch err := cluster.CheckURL(s.Redis); {
	case s.Metrics == s.Listen && port != "0" && s.chosen("metrics"):
		return fault.New(fault.Conflict, fmt.Errorf("--listen and --metrics are the same address %s", s.Listen), "use different addresses")
	case s.Redis != "" && err != nil:
		return account.RedisError(err, "--redis")
	case config.CheckAddress(s.Listen) != nil:
		return fault.New(fault.Value, fmt.Errorf("--listen %s is not an address", s.Listen),
			"use a host and a port, for example --listen 127.0.0.1:8787")
	case len(s.Tenants) > 0 && account.StateDir() == "":
		err := s.from.File.At("serve.tenants", errors.New("spending caps need a state directory"))
		return fault.New(fault.Settings, err, "set XDG_STATE_HOME to a directory")
	}
	for _, name := range s.Hosts {
		if err := config.CheckHost(name); err != nil {
			return fault.New(fault.Value, fmt.Errorf("--allow-host %s: %w", name, err),
				"write a host name, with or without a port: --allow-host gateway.example.com")
		}
	}
	if host == "" {
		host = net.IPv4zero.String()
	}
	return s.guard(net.ParseIP(host))
}

// guard refuses an IP address at which other hosts reach the gateway, unless they need a key. It accepts nil, an unknown address.
func (s *settings) guard(ip net.IP) error {
	switch {
	case ip == nil || ip.IsLoopback():
		return nil
	case len(s.Tenants) == 0:
		return fault.New(fault.Value, s.wrong("listen", s.Listen+" may be reachable for others, who would need no key"),
			"add tenants with `sluice serve key NAME`, or listen only on this host with --listen 127.0.0.1:8787")
	case len(s.hosts()) == 0:
		return fault.New(fault.Missing, s.wrong("listen", s.Listen+": the host name that clients use is missing"),
			"add the name, for example --allow-host gateway.example.com")
	}
	return nil
}

// checkFiles refuses files that cannot be written, or that would overwrite each other or a file that is read.
func (s *settings) checkFiles() error {
	var files []regular.Named
	for _, f := range fields() {
		path := f.of(&s.Serve).String()
		if !f.output || path == "" || path == "-" {
			continue
		}
		if info, err := os.Stat(filepath.Dir(path)); err != nil || !info.IsDir() {
			return fault.New(fault.File, s.wrong(f.name, path+": the directory does not exist"),
				"create the directory, or use a file in an existing one")
		}
		files = append(files, regular.Named{What: f.name, Path: path, Own: true})
	}
	for path := range s.from.Files {
		files = append(files, regular.Named{What: "the settings", Path: path})
	}
	for _, up := range s.from.File.Upstreams {
		if up.KeyFile != "" {
			files = append(files, regular.Named{What: "key_file of upstream " + up.Name, Path: s.from.Beside("upstreams", up.KeyFile)})
		}
	}
	return regular.Apart(files...)
}

// leadsTo reports whether requests to a base URL arrive at an address of this host, as far as the texts show.
func leadsTo(base, address string) bool {
	u, err := url.Parse(base)
	host, port, bad := net.SplitHostPort(address)
	if err != nil || bad != nil || u.Hostname() == "" ||
		port != cmp.Or(u.Port(), map[string]string{"http": "80", "https": "443"}[u.Scheme]) {
		return false
	}
	local := func(host string) bool {
		ip := net.ParseIP(host)
		return host == "" || strings.EqualFold(host, "localhost") || ip.IsLoopback() || ip.IsUnspecified()
	}
	return strings.EqualFold(u.Hostname(), host) || local(u.Hostname()) && local(host)
}
