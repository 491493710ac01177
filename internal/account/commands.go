package account

import (
	"math"
	"path/filepath"

	"github.com/sluice-llm/sluice"
	"github.com/sluice-llm/sluice/internal/command"
	"github.com/sluice-llm/sluice/internal/config"
	"github.com/sluice-llm/sluice/internal/proc/agents"
)

// CommandsConfig configures Commands. Command is required.
type CommandsConfig struct {
	Command   []string      // program and arguments
	Agent     *agents.CLI   // agent that the command runs (default: recognized from the name of the program)
	Limits    sluice.Limits // configured by flags; they take precedence over the settings
	Sources   Sources
	Scheduler sluice.Config // template of the Scheduler
}

// Commands is an account of commands that are limited together: of the commands of one agent on this host, or of one run.
type Commands struct {
	Settings  *Settings
	Scheduler *sluice.Scheduler
	Lane      string // of all commands

	flags, limits sluice.Limits
}

// OpenCommands reads the settings and opens the account. Close the Scheduler.
func OpenCommands(cfg CommandsConfig) (*Commands, error) {
	settings, err := cfg.Sources.Open()
	if err != nil {
		return nil, err
	}
	c := &Commands{Settings: settings, flags: cfg.Limits, Lane: filepath.Base(cfg.Command[0])}
	c.limits = c.limitsOf(&settings.File)
	s := cfg.Scheduler
	s.Name, s.Limits, s.MaxThrottles = "exec", c.limits, math.MaxInt32
	agent := cfg.Agent
	if agent == nil {
		agent = agents.Recognise(cfg.Command[0])
	}
	if agent != nil { // the limits of another program are unknown, and kept only in the directory of its run
		path, err := command.Find(cfg.Command)
		if err != nil {
			path = cfg.Command[0]
		}
		if whole, err := filepath.Abs(path); err == nil {
			path = whole
		}
		s.Name, s.StateDir, c.Lane = "exec "+path, StateDir(), agent.Name()
	}
	if c.Scheduler, err = sluice.New(s); err != nil {
		return nil, stateError(err, s.StateDir)
	}
	return c, nil
}

// Concurrency returns the maximum number of commands at once; 0 if it is learned.
func (c *Commands) Concurrency() int { return c.limits.Concurrency }

// limitsOf returns the limits of flags, and for others the limits of the settings that apply to commands.
func (c *Commands) limitsOf(file *config.File) (below sluice.Limits) {
	if file.Limits != nil {
		ceilings, _ := file.Limits.Split()
		below = sluice.Limits{RPM: ceilings.RPM, Concurrency: ceilings.Concurrency}
	}
	return Over(c.flags, below)
}

// Reread reads the settings again, and applies their limits. It returns lines that say what changed. After an error, nothing has changed.
func (c *Commands) Reread() (lines []string, err error) {
	next, lines, err := c.Settings.reread()
	if err != nil {
		return nil, err
	}
	change := Change{Before: c.limits, After: c.limitsOf(&next.File)}
	if err := c.Scheduler.SetLimits(change.After, sluice.Limits{}); err != nil {
		return nil, err
	}
	c.limits = change.After
	return append(lines, change.Lines()...), nil
}
