package cli

import (
	"fmt"

	"github.com/sluice-llm/sluice"
	"github.com/sluice-llm/sluice/internal/prose"
	"github.com/sluice-llm/sluice/internal/work"
)

// room is how many calls may be open at once because each is an open file. The zero value has no bound.
type room struct {
	calls int
	files uint64 // that the process may open
}

// ownFiles is how many files the run itself may need: its input, output, state and log, and what looking up names takes.
const ownFiles = 64

// newRoom asks the system.
func newRoom() room {
	files := openFiles()
	if files == 0 || files >= work.UsualWorkers+ownFiles {
		return room{}
	}
	return room{calls: max(1, int(files-min(ownFiles, files/2))), files: files}
}

// bound holds ceilings and beliefs to it. A limit that is to be learned is left so: it is bound by the workers.
func (r room) bound(c *sluice.Config) {
	if r.calls == 0 {
		return
	}
	for _, l := range []*sluice.Limits{&c.Limits, &c.Account, &c.Start} {
		l.Concurrency = min(l.Concurrency, r.calls)
	}
}

// among is the part of it that each of so many accounts has.
func (r room) among(accounts int) room {
	if r.calls > 0 {
		r.calls = max(1, r.calls/accounts)
	}
	return r
}

// note says how many calls there can be if so many are wanted and that is more.
func (r room) note(wanted int) string {
	if r.calls == 0 || wanted <= r.calls {
		return ""
	}
	return fmt.Sprintf("at most %s requests are in flight, because this process may open only %s files (ulimit -n)", prose.Group(r.calls), prose.Group(int64(r.files)))
}
