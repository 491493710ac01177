package cli

import (
	"context"
	"errors"
	"strings"

	"github.com/sluice-llm/sluice/cluster"
	"github.com/sluice-llm/sluice/internal/account"
	"github.com/sluice-llm/sluice/internal/fault"
	"github.com/sluice-llm/sluice/internal/runinfo"
	"github.com/sluice-llm/sluice/internal/term"
	"github.com/sluice-llm/sluice/provider"
)

// accountFlags fill an account.Config.
type accountFlags struct{ account.Config }

// target returns the flags of the provider, its address, the model and the key. use is the help of the model.
func (f *accountFlags) target(use string) []flag {
	return []flag{
		{name: "provider", field: &f.Provider, metavar: "NAME", help: "Use this provider (default: recognized from the model)", common: true},
		{name: "base-url", field: &f.BaseURL, metavar: "URL", help: "Use this base URL, in the form of the SDK", common: true,
			sets: "BaseURL Target", fix: "write an address such as --base-url https://api.example.com/v1"},
		{name: "model", field: &f.Model, metavar: "MODEL", help: use, common: true, sets: "Target.Model"},
		{name: "key-env", field: &f.Keys.Env, metavar: "NAME", help: "Read the API key from this variable (default: by provider)"},
	}
}

// keyFile returns the flag of that name for the file with the key.
func (f *accountFlags) keyFile(name string) flag {
	f.Keys.Flag = "--" + name
	return flag{name: name, field: &f.Keys.File, metavar: "FILE", help: "Read the key from this .env file if the variable is unset"}
}

func (f *accountFlags) headerFlag() flag {
	return flag{name: "header", field: &f.Header, metavar: "'NAME: VALUE'", help: "Send this header with every request; repeatable"}
}

func configFlag(f *account.Sources) flag {
	return flag{name: "config", field: (*[]string)(f), metavar: "FILE", help: "Read settings; repeatable (default: $" + account.ConfigVariable + ")"}
}

// config returns the Config without a Logger. Secrets are hidden from s.
func (f *accountFlags) config(s *term.Streams) (cfg account.Config, err error) {
	cfg = f.Config
	cfg.Hide = s.Hide
	return cfg, checkLimits(&cfg.Limits)
}

// open opens the accounts. With verbose, it prints where the settings come from.
func (f *accountFlags) open(s *term.Streams, verbose bool) (*account.Accounts, error) {
	cfg, err := f.config(s)
	if err != nil {
		return nil, err
	}
	cfg.Logger = s.Logger(verbose)
	return account.Open(cfg)
}

func redisFlag(field *string) flag {
	return flag{name: "redis", field: field, metavar: "URL", help: "Share limits via Redis; password in $" + cluster.PasswordVariable}
}

// openShared connects to Redis; nil if there is no URL. role is the command.
func openShared(ctx context.Context, s *term.Streams, url, role string, verbose bool) (*account.Shared, error) {
	if url == "" {
		return nil, nil
	}
	return account.OpenShared(ctx, cluster.Config{URL: url, Role: role, Logger: s.Logger(verbose)}, "--redis", s.Hide)
}

// shownArgs returns arguments without the password in the URL of Redis.
func shownArgs(args []string) []string {
	shown := make([]string, len(args))
	for i, arg := range args {
		switch {
		case i > 0 && args[i-1] == "--redis":
			shown[i] = cluster.Redact(arg)
		case strings.HasPrefix(arg, "--redis="):
			shown[i] = "--redis=" + cluster.Redact(strings.TrimPrefix(arg, "--redis="))
		default:
			shown[i] = arg
		}
	}
	return shown
}

// explainRun returns the error of a run of requests, with a hint in words of the command line args.
func explainRun(args []string, keys *account.Accounts, err error) *fault.Error {
	line := runinfo.CommandLine{Own: args, Phrases: []string{"another output", "another output with -o", "check the key", keyHint(keys, err)}}
	return line.Explain(err)
}

// keyHint names the rejected key.
func keyHint(a *account.Accounts, err error) string {
	if refused, ok := errors.AsType[*provider.Error](err); ok {
		if name := a.KeyFrom(refused.Provider); name != "" {
			return "check the key in " + name
		}
	}
	return "name the variable of the key with --key-env, or check the key in --header"
}
