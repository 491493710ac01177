package account

import (
	"fmt"

	"github.com/sluice-llm/sluice"
	"github.com/sluice-llm/sluice/internal/prose"
	"github.com/sluice-llm/sluice/internal/work"
)

// Room is how many requests can be in flight at once, because each request is an open file. The zero value has no limit.
type Room struct {
	Requests int
	files    uint64 // that the process may open
}

// ownFiles is how many files the run itself may need: its input, output, state and log, and the lookup of names.
const ownFiles = 64

func newRoom() Room {
	files := openFiles()
	if files == 0 || files >= work.UsualWorkers+ownFiles {
		return Room{}
	}
	return Room{Requests: max(1, int(files-min(ownFiles, files/2))), files: files}
}

// bound limits the concurrency of one of several accounts. A concurrency that will be learned stays unlimited here: the number of
// workers limits it.
func (r Room) bound(c *sluice.Config, accounts int) {
	if r.Requests == 0 {
		return
	}
	for _, l := range []*sluice.Limits{&c.Limits, &c.Account, &c.Start} {
		l.Concurrency = min(l.Concurrency, max(1, r.Requests/max(1, accounts)))
	}
}

// Note says that fewer requests can be in flight than wanted. "" means that the room suffices.
func (r Room) Note(wanted int) string {
	if r.Requests == 0 || wanted <= r.Requests {
		return ""
	}
	return fmt.Sprintf("at most %s requests are in flight, because this process may open only %s files (ulimit -n)",
		prose.Group(r.Requests), prose.Group(int64(r.files)))
}
