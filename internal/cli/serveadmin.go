package cli

import (
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/sluice-llm/sluice/gateway"
	"github.com/sluice-llm/sluice/internal/control"
	"github.com/sluice-llm/sluice/provider"
)

// admin is who may steer the gateway at /ui: who knows the key in a variable. Nil: nobody.
func (r *serving) admin(variable string) (*gateway.Admin, error) {
	fault := func(text string) error {
		return r.settings.fault(&r.accounts.settings.file, "--admin-key-env", "admin_key_env", errors.New(text))
	}
	if variable == "" {
		return nil, nil
	}
	if !provider.IsVariable(variable) { // it may be the key itself
		return nil, usageError(errors.New("what --admin-key-env names is no variable"),
			"it takes the name of a variable, such as --admin-key-env SLUICE_ADMIN_KEY, and never a key itself")
	}
	key := strings.TrimSpace(os.Getenv(variable))
	r.s.err.secrets.hide(key)
	if key == "" {
		return nil, usageError(fault(variable+" is not set in the environment"), "export %s=$(openssl rand -hex 16)", variable)
	}
	if len(key) < leastToken || strings.ContainsFunc(key, notInKey) {
		return nil, usageError(fault(fmt.Sprintf("the key in %s is shorter than %d characters, or holds some that a header cannot", variable, leastToken)),
			"export %s=$(openssl rand -hex 16)", variable)
	}
	return &gateway.Admin{Key: key, Pause: r.hold, Paused: func() bool { return r.present().held() }, Limits: r.tell}, nil
}

// hold pauses the gateway, or lets it go on.
func (r *serving) hold(paused bool) error {
	r.steering <- struct{}{}
	defer func() { <-r.steering }()
	changed, err := r.present().hold(paused)
	switch {
	case changed && paused:
		r.say("sluice serve: paused by the admin: calls wait\n")
	case changed:
		r.say("sluice serve: resumed by the admin\n")
	}
	return err
}

// tell sets limits of all accounts, until the settings are read again.
func (r *serving) tell(body []byte) error {
	limits, err := control.ParseLimits(body)
	if err != nil {
		return err
	}
	r.steering <- struct{}{}
	defer func() { <-r.steering }()
	done, err := r.present().tell(limits)
	for _, one := range done {
		for _, line := range one.text("limits set by the admin", len(done) > 1) {
			r.say("sluice serve: %s\n", line)
		}
	}
	return err
}

// present are the accounts of the settings that hold now.
func (r *serving) present() *accounts {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.accounts
}
