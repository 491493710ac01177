package account

import (
	"cmp"
	"fmt"
	"net/netip"
	"net/url"
	"os"
	"runtime"
	"slices"
	"strings"

	"github.com/sluice-llm/sluice/internal/config"
	"github.com/sluice-llm/sluice/internal/fault"
	"github.com/sluice-llm/sluice/internal/regular"
	"github.com/sluice-llm/sluice/provider"
)

// DotEnv is the file in which projects keep their variables.
const DotEnv = ".env"

// HasDotEnv reports whether the working directory has a file DotEnv.
func HasDotEnv() bool {
	info, err := os.Stat(DotEnv)
	return err == nil && info.Mode().IsRegular()
}

// KeySource says where keys are looked up.
type KeySource struct {
	Env  string // variable of the key (default: the variables of the provider)
	File string // .env file for variables that are unset in the environment; "" is none
	Flag string // flag that sets File, for hints; "" if the command has none
}

// unset says that a variable has no value.
func (k *KeySource) unset(name string) string {
	where := "in the environment"
	if k.File != "" {
		where += " or in " + k.File
	}
	return name + " is not set " + where
}

// first returns the first key that variables of these names contain; without a Value if there is none. It hides the key.
func (k *KeySource) first(hide func(secret string), names ...string) (provider.Key, error) {
	for _, name := range names {
		if value, err := k.lookup(name); err != nil || value != "" {
			return provider.Key{From: name, Value: value}, cmp.Or(err, acceptKey(value, name, hide))
		}
	}
	return provider.Key{}, nil
}

// acceptKey hides a key, and refuses one that no header can contain. from is a variable or file.
func acceptKey(key, from string, hide func(secret string)) error {
	if strings.ContainsFunc(key, notPrintable) {
		return fault.New(fault.Key, fmt.Errorf("the key in %s contains invalid characters", from),
			"remove line breaks, quotes and spaces from the key")
	}
	hide(key)
	return nil
}

// notPrintable reports whether a character is not printable ASCII, or is a space.
func notPrintable(r rune) bool { return r <= ' ' || r > '~' }

// lookup returns the value of a variable of the environment, or else of the file; "" if neither sets it.
func (k *KeySource) lookup(name string) (string, error) {
	if value := strings.TrimSpace(os.Getenv(name)); value != "" || k.File == "" {
		return value, nil
	}
	text, err := regular.Read(k.File, 1)
	if err != nil {
		return "", fault.New(fault.File, fmt.Errorf("keys file: %w", err), "name a file of NAME=VALUE lines")
	}
	return keyIn(string(text), name), nil
}

// Key returns the key for p; "" if p needs none.
func (a *Accounts) Key(p provider.Provider) (string, error) {
	if key, known := a.found.Load(p.Name); known {
		return key.(provider.Key).Value, nil
	}
	flags := config.Upstream{BaseURL: a.Config.BaseURL}
	if env := a.Config.Keys.Env; env != "" && p.Auth.Header != "" {
		flags.KeyEnv = config.Names{env}
	}
	keys, err := a.keysOf(flags, p)
	if err != nil {
		return "", err
	}
	key := append(keys, provider.Key{})[0]
	a.found.Store(p.Name, key)
	return key.Value, nil
}

// KeyFrom returns the variable of the key for a provider by name; "" without a key.
func (a *Accounts) KeyFrom(name string) string {
	key, _ := a.found.Load(name)
	found, _ := key.(provider.Key)
	return found.From
}

// warnUnencrypted warns of a key that others on the network can read.
func (a *Accounts) warnUnencrypted(p provider.Provider, address string) {
	u, err := url.Parse(address)
	if a.Config.Purpose == Submit || p.Name == "sim" || err != nil || u.Scheme != "http" || u.Hostname() == "localhost" {
		return
	}
	if ip, err := netip.ParseAddr(u.Hostname()); err == nil && ip.Unmap().IsLoopback() {
		return
	}
	a.Settings.Log.Warn(fmt.Sprintf("the key is sent to %s unencrypted, and others on the network can read it: use an https address", address))
}

// keysOf returns the keys of an upstream at p. An upstream without a name is the one of flags.
func (a *Accounts) keysOf(up config.Upstream, p provider.Provider) (all []provider.Key, err error) {
	wanted, required := []config.Names{p.KeyEnv}, len(p.KeyEnv) > 0 && !p.KeyOptional
	switch {
	case up.KeyFile != "":
		key, err := a.keyFile(up)
		if err != nil {
			return nil, err
		}
		wanted, all = nil, append(all, key)
	case up.KeyEnv != nil:
		wanted, required = slices.Collect(slices.Chunk(up.KeyEnv, 1)), true
	case p.Auth.Header == "":
		return nil, nil
	}
	for _, names := range wanted {
		key, err := a.Config.Keys.first(a.Config.Hide, names...)
		switch {
		case err != nil:
			return nil, err
		case key.Value != "":
			all = append(all, key)
		case required:
			return nil, a.missing(up, p, names)
		}
	}
	if len(all) > 0 {
		a.warnUnencrypted(p, cmp.Or(up.BaseURL, p.BaseURL))
	}
	return all, nil
}

// missing is the error if none of the variables has a key of an upstream at p.
func (a *Accounts) missing(up config.Upstream, p provider.Provider, names []string) error {
	name, source := names[0], &a.Config.Keys
	if up.Name != "" {
		err := a.At(up.Name, "key_env", fmt.Errorf("no key for upstream %s: %s", up.Name, source.unset(name)))
		if !a.Listed() { // flags or the environment define the upstream
			return fault.New(fault.Key, err, "export %s=..., name another variable with --key-env, or try --provider sim, which needs no key", name)
		}
		return fault.New(fault.Key, err, "export %s=..., or remove that upstream from the file", name)
	}
	err := fmt.Errorf("no key for %s: %s", p.Name, source.unset(name))
	dotEnv := KeySource{File: DotEnv}
	found := slices.IndexFunc(names, func(name string) bool { value, _ := dotEnv.lookup(name); return value != "" })
	switch {
	case !provider.IsVariable(name): // it may be a key
		return fault.New(fault.Key, fmt.Errorf("no key for %s: %s", p.Name, source.unset("the variable of --key-env")),
			"set --key-env to the name of a variable, such as MY_API_KEY, not to a key")
	case source.Flag == "":
		return fault.New(fault.Key, err, "export %s=..., or try --provider sim, which needs no key", name)
	case source.File == "" && found >= 0:
		return fault.New(fault.Key, err, "pass %s %s, which sets %s", source.Flag, DotEnv, names[found])
	}
	return fault.New(fault.Key, err, "export %s=..., read it from a file with %s %s, or try --provider sim, which needs no key",
		name, source.Flag, DotEnv)
}

// keyFile returns the key in the file that an upstream names.
func (a *Accounts) keyFile(up config.Upstream) (provider.Key, error) {
	path := a.Settings.Beside("upstreams", up.KeyFile)
	a.Settings.Files.Note(path)
	text, err := regular.Read(path, 1)
	if err != nil {
		return provider.Key{}, fault.New(fault.Key, a.At(up.Name, "key_file", err),
			"set key_file to a file that contains only the key of upstream %s", up.Name)
	}
	key := strings.TrimSpace(strings.TrimPrefix(string(text), "\ufeff"))
	if err = acceptKey(key, path, a.Config.Hide); key == "" {
		err = fmt.Errorf("%s is empty", path)
	}
	if err != nil {
		return provider.Key{}, fault.New(fault.Key, a.At(up.Name, "key_file", err), "write only the key into the file, without NAME= and quotes")
	}
	if info, err := os.Stat(path); err == nil && runtime.GOOS != "windows" && info.Mode().Perm()&0o077 != 0 {
		a.Settings.Log.Warn(fmt.Sprintf("other users can read %[1]s: run chmod 600 %[1]s", path))
	}
	return provider.Key{From: path, Value: key}, nil
}

// keyIn returns the value of a variable in lines of the form NAME=value, which may start with "export" and be quoted. The last one
// counts, as in a shell.
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

// unquote removes the quotes of a value, or the comment after a value without quotes.
func unquote(value string) string {
	for _, quote := range []string{`"`, `'`} {
		if rest, ok := strings.CutPrefix(value, quote); ok {
			if inner, _, ok := strings.Cut(rest, quote); ok {
				return inner
			}
		}
	}
	value, _, _ = strings.Cut(value, " #")
	return strings.TrimSpace(value)
}
