package account

import (
	"fmt"

	"github.com/sluice-llm/sluice"
	"github.com/sluice-llm/sluice/internal/prose"
	"github.com/sluice-llm/sluice/internal/work"
)

// ownFiles is how many files the run itself may need: its input, output, state and log, and the lookup of names.
const ownFiles = 64

// room returns how many requests can be in flight at once, because each is an open file; 0 means unlimited.
func room() int {
	files := openFiles()
	if files == 0 || files >= work.UsualWorkers+ownFiles {
		return 0
	}
	return max(1, int(files-min(ownFiles, files/2)))
}

// bound limits the concurrency of each of several accounts to its part of Room. A concurrency that will be learned stays unlimited here:
// the number of workers limits it. With shared limits, the room of this host would limit others.
func (a *Accounts) bound(c *sluice.Config) {
	if a.Room == 0 || a.pool.shared != nil {
		return
	}
	for _, l := range []*sluice.Limits{&c.Limits, &c.Account, &c.Start} {
		l.Concurrency = min(l.Concurrency, max(1, a.Room/max(1, a.accounts)))
	}
}

// RoomNote says that fewer requests can be in flight than wanted. "" means that the room suffices.
func (a *Accounts) RoomNote(wanted int) string {
	if a.Room == 0 || wanted <= a.Room {
		return ""
	}
	return fmt.Sprintf("at most %s requests are in flight, because this process may open only %s files (ulimit -n)",
		prose.Group(a.Room), prose.Group(int64(openFiles())))
}
