package account

import (
	"fmt"
	"os"
	"runtime"
	"strings"
	"sync"

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

// keys looks up keys, and hides them from all that is printed. It is safe for concurrent use.
type keys struct {
	KeySource
	hide func(secret string)

	mu    sync.Mutex
	found map[string]provider.Key // by provider; without a Value if the provider needs no key
}

// of returns the key for p, and whether it was looked up just now. It is an error if there is no key and p needs one.
func (k *keys) of(p provider.Provider) (key provider.Key, first bool, err error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if key, known := k.found[p.Name]; known {
		return key, false, nil
	}
	names := p.KeyEnv
	if k.Env != "" {
		names = []string{k.Env}
	}
	needed := p.Auth.Header != "" && len(names) > 0 && (!p.KeyOptional || k.Env != "")
	if key, err = k.first(names...); err == nil && key.Value == "" && needed {
		err = k.missing(p, names)
	}
	if err == nil {
		k.found[p.Name] = key
	}
	return key, true, err
}

// missing is the error if none of the variables has a key for p.
func (k *keys) missing(p provider.Provider, names []string) error {
	if !provider.IsVariable(names[0]) { // it may be a key
		return fault.New(fault.Key, fmt.Errorf("no key for %s: %s", p.Name, k.unset("the variable of --key-env")),
			"set --key-env to the name of a variable, such as MY_API_KEY, not to a key")
	}
	err := fmt.Errorf("no key for %s: %s", p.Name, k.unset(names[0]))
	switch {
	case k.Flag == "":
		return fault.New(fault.Key, err, "export %s=..., or try --provider sim, which needs no key", names[0])
	case k.File == "" && inDotEnv(names) != "":
		return fault.New(fault.Key, err, "pass %s %s, which sets %s", k.Flag, DotEnv, inDotEnv(names))
	}
	return fault.New(fault.Key, err, "export %s=..., read it from a file with %s %s, or try --provider sim, which needs no key",
		names[0], k.Flag, DotEnv)
}

// inDotEnv returns the first of the variables that DotEnv sets; "" is none.
func inDotEnv(names []string) string {
	if !HasDotEnv() {
		return ""
	}
	text, _ := regular.Read(DotEnv, 1)
	for _, name := range names {
		if keyIn(string(text), name) != "" {
			return name
		}
	}
	return ""
}

// unset says that a variable has no value.
func (k *keys) unset(name string) string {
	where := "in the environment"
	if k.File != "" {
		where += " or in " + k.File
	}
	return name + " is not set " + where
}

// first returns the first key that variables of these names contain; without a Value if there is none.
func (k *keys) first(names ...string) (provider.Key, error) {
	for _, name := range names {
		value, err := k.lookup(name)
		if err == nil && value != "" {
			err = k.accept(value, name)
		}
		if err != nil || value != "" {
			return provider.Key{From: name, Value: value}, err
		}
	}
	return provider.Key{}, nil
}

// accept hides a key, and refuses one that no header can contain. from is a variable or file.
func (k *keys) accept(key, from string) error {
	if strings.ContainsFunc(key, notPrintable) {
		return fault.New(fault.Key, fmt.Errorf("the key in %s contains invalid characters", from),
			"remove line breaks, quotes and spaces from the key")
	}
	k.hide(key)
	return nil
}

// notPrintable reports whether a character is not printable ASCII, or is a space.
func notPrintable(r rune) bool { return r <= ' ' || r > '~' }

// lookup returns the value of a variable of the environment, or else of the file; "" if neither sets it.
func (k *keys) lookup(name string) (string, error) {
	if value := strings.TrimSpace(os.Getenv(name)); value != "" || k.File == "" {
		return value, nil
	}
	text, err := regular.Read(k.File, 1)
	if err != nil {
		return "", fault.New(fault.File, fmt.Errorf("keys file: %w", err), "name a file of NAME=VALUE lines")
	}
	return keyIn(string(text), name), nil
}

// keyFile returns the key in the file that an upstream names.
func (a *Accounts) keyFile(up config.Upstream) (provider.Key, error) {
	path := a.Settings.Beside("upstreams", up.KeyFile)
	a.Settings.Files.Note(path)
	text, err := regular.Read(path, 1)
	if err != nil {
		return provider.Key{}, fault.New(fault.Key, a.at(up, "key_file", err),
			"set key_file to a file that contains only the key of upstream %s", up.Name)
	}
	key := strings.TrimSpace(strings.TrimPrefix(string(text), "\ufeff"))
	if err = a.keys.accept(key, path); key == "" {
		err = fmt.Errorf("%s is empty", path)
	}
	if err != nil {
		return provider.Key{}, fault.New(fault.Key, a.at(up, "key_file", err), "write only the key into the file, without NAME= and quotes")
	}
	if info, err := os.Stat(path); err == nil && runtime.GOOS != "windows" && info.Mode().Perm()&0o077 != 0 {
		a.Settings.doubt(fmt.Sprintf("other users can read %[1]s: run chmod 600 %[1]s", path))
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
