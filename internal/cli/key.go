package cli

import (
	"cmp"
	"fmt"
	"net/netip"
	"net/url"
	"os"
	"runtime"
	"strings"

	"github.com/sluice-llm/sluice/internal/config"
	"github.com/sluice-llm/sluice/internal/fault"
	"github.com/sluice-llm/sluice/provider"
)

// Key returns the key for p. It is an error if there is none, unless p may do without.
func (a *accounts) Key(p provider.Provider) (string, error) {
	a.mu.Lock()
	key, known := a.keys[p.Name]
	a.mu.Unlock()
	if known {
		return key.Value, nil
	}
	key, err := a.findKey(p)
	if err != nil {
		return "", err
	}
	a.warnOfClear(p, a.flags.baseURL, key.Value)
	a.mu.Lock()
	defer a.mu.Unlock()
	a.keys[p.Name] = key
	return key.Value, nil
}

// warnOfClear warns of a key that others on the way to p can read; its address is base where it is not the usual one.
func (a *accounts) warnOfClear(p provider.Provider, base, key string) {
	address := cmp.Or(base, p.BaseURL)
	u, err := url.Parse(address)
	if key == "" || a.flags.elsewhere || p.Name == "sim" || err != nil || u.Scheme != "http" || u.Hostname() == "localhost" {
		return
	}
	if ip, err := netip.ParseAddr(u.Hostname()); err == nil && ip.Unmap().IsLoopback() {
		return
	}
	a.warn("sluice: warning: the key is sent to %s unencrypted, and others on the network can read it: use an https address\n", address)
}

// KeyFrom returns the variable that the key for the provider of that name was found in; "" is none.
func (a *accounts) KeyFrom(name string) string {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.keys[name].From
}

// findKey looks the key for p up.
func (a *accounts) findKey(p provider.Provider) (provider.Key, error) {
	names := p.KeyEnv
	if named := a.flags.keyEnv; named != "" {
		names = []string{named}
	}
	key, err := a.firstKey(names)
	switch {
	case err != nil || key.Value != "":
		return key, err
	case p.Auth.Header == "" || len(names) == 0 || p.KeyOptional && a.flags.keyEnv == "":
		return key, nil
	case !provider.IsVariable(names[0]):
		return key, fault.New(fault.Key, fmt.Errorf("no key for %s: %s", p.Name, a.unset("the variable of --key-env")),
			"set --key-env to the name of a variable, such as MY_API_KEY, not to a key")
	}
	missing := fmt.Errorf("no key for %s: %s", p.Name, a.unset(names[0]))
	switch {
	case a.flags.fileFlag == "":
		return key, fault.New(fault.Key, missing, "export %s=..., or try --provider sim, which needs no key", names[0])
	case a.flags.envFile == "" && inDotEnv(names) != "":
		return key, fault.New(fault.Key, missing, "pass %s %s, which sets %s", a.flags.fileFlag, dotEnv, inDotEnv(names))
	}
	return key, fault.New(fault.Key, missing, "export %s=..., read it from a file with %s %s, or try --provider sim, which needs no key", names[0], a.flags.fileFlag, dotEnv)
}

// dotEnv is the file in which projects keep their variables. Only find reads it by default; run needs --env-file.
const dotEnv = ".env"

// isFile reports whether a plain file of that name exists.
func isFile(name string) bool {
	info, err := os.Stat(name)
	return err == nil && info.Mode().IsRegular()
}

// inDotEnv returns the first of the variables that the file .env here sets; "" is none.
func inDotEnv(names []string) string {
	if !isFile(dotEnv) {
		return ""
	}
	text, err := readNamed(dotEnv, 1)
	if err != nil {
		return ""
	}
	for _, name := range names {
		if keyIn(string(text), name) != "" {
			return name
		}
	}
	return ""
}

// firstKey returns the first key that variables of those names hold; an empty one is none.
func (a *accounts) firstKey(names []string) (provider.Key, error) {
	for _, name := range names {
		if value, err := a.keyOf(name); err != nil || value != "" {
			return provider.Key{From: name, Value: value}, err
		}
	}
	return provider.Key{}, nil
}

// unset says that a variable holds no key.
func (a *accounts) unset(name string) string {
	where := "in the environment"
	if file := a.flags.envFile; file != "" {
		where += " or in " + file
	}
	return name + " is not set " + where
}

// keyOf returns the key in a variable, "" if there is none. It is never printed.
func (a *accounts) keyOf(name string) (string, error) {
	key, err := lookupKey(name, a.flags.envFile)
	if err != nil {
		return "", err
	}
	if strings.ContainsFunc(key, notInKey) {
		return "", fault.New(fault.Key, fmt.Errorf("the key in %s contains invalid characters", name),
			"remove line breaks, quotes and spaces from the key")
	}
	if key != "" {
		a.hide(key)
	}
	return key, nil
}

// notInKey reports whether a character is in no key, and in no token either: a header could not hold it.
func notInKey(r rune) bool { return r <= ' ' || r > '~' }

// keyFile returns the key in the file that an upstream names. It is never printed.
func (a *accounts) keyFile(up config.Upstream) (provider.Key, error) {
	s := a.settings
	path := s.beside("upstreams", up.KeyFile)
	s.files.Note(path)
	text, err := readNamed(path, 1)
	if err != nil {
		return provider.Key{}, fault.New(fault.Key, a.at(up, "key_file", err), "set key_file to a file that contains only the key of upstream %s", up.Name)
	}
	key := strings.TrimSpace(strings.TrimPrefix(string(text), "\ufeff"))
	switch {
	case key == "":
		err = fmt.Errorf("%s is empty", path)
	case strings.ContainsFunc(key, notInKey):
		err = fmt.Errorf("the key in %s contains invalid characters", path)
	}
	if err != nil {
		return provider.Key{}, fault.New(fault.Key, a.at(up, "key_file", err), "write only the key into the file, without NAME= and quotes")
	}
	a.hide(key)
	if info, err := os.Stat(path); err == nil && runtime.GOOS != "windows" && info.Mode().Perm()&0o077 != 0 {
		s.doubts = withNote(s.doubts, fmt.Sprintf("other users can read %[1]s: run chmod 600 %[1]s", path))
	}
	return provider.Key{From: path, Value: key}, nil
}

// lookupKey returns the value of the environment variable name, or else what the file says it is; "" if neither has
// it. An empty file name is no file. Nothing but the line of that variable is kept.
func lookupKey(name, file string) (string, error) {
	if key := strings.TrimSpace(os.Getenv(name)); key != "" || file == "" {
		return key, nil
	}
	text, err := readNamed(file, 1)
	if err != nil {
		return "", fault.New(fault.File, fmt.Errorf("keys file: %w", err), "name a file of NAME=VALUE lines")
	}
	return keyIn(string(text), name), nil
}

// keyIn finds the variable name in lines of the form NAME=value, which may begin with "export" and be quoted. The
// last one holds, as in a shell.
func keyIn(text, name string) string {
	key := ""
	for line := range strings.Lines(strings.TrimPrefix(text, "\ufeff")) {
		line = strings.TrimSpace(strings.TrimPrefix(strings.TrimSpace(line), "export "))
		before, value, ok := strings.Cut(line, "=")
		if ok && strings.TrimSpace(before) == name {
			key = unquote(strings.TrimSpace(value))
		}
	}
	return key
}

// unquote strips the quotes of a value, or the comment behind one without quotes.
func unquote(value string) string {
	for _, quote := range []string{`"`, `'`} {
		if rest, ok := strings.CutPrefix(value, quote); ok {
			if inner, _, ok := strings.Cut(rest, quote); ok {
				return inner
			}
		}
	}
	if before, _, ok := strings.Cut(value, " #"); ok {
		value = before
	}
	return strings.TrimSpace(value)
}
