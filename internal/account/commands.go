package account

import (
	"math"
	"path/filepath"

	"github.com/sluice-llm/sluice"
	"github.com/sluice-llm/sluice/internal/command"
	"github.com/sluice-llm/sluice/internal/proc/agents"
)

// OpenCommands opens the account of all processes of a command, and returns its Scheduler and their lane. Processes of an agent on this
// host have one account, and other processes have one for each run. If agent is nil, it is recognized from the name of the program.
func (a *Accounts) OpenCommands(words []string, agent *agents.CLI) (s *sluice.Scheduler, lane string, err error) {
	c, lane := a.Config.Scheduler, filepath.Base(words[0])
	c.Name, c.MaxThrottles = "exec", math.MaxInt32
	if agent == nil {
		agent = agents.Recognise(words[0])
	}
	if agent != nil { // the limits of another program are unknown, and kept only in the directory of its run
		path, err := command.Find(words)
		if err != nil {
			path = words[0]
		}
		if whole, err := filepath.Abs(path); err == nil {
			path = whole
		}
		c.Name, c.StateDir, lane = "exec "+path, StateDir(), agent.Name()
	}
	s, err = a.openMember(c, member{})
	return s, lane, err
}
