package stress

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/sluice-llm/sluice/pool"
)

// note is what a member keeps as its checkpoint.
type note struct {
	Member string `json:"member"`
	Writer int    `json:"writer"`
	Serial int64  `json:"serial"`
	Text   string `json:"text"`
	Sum    string `json:"sum"`
}

func newNote(member string, writer int, serial int64, length int) note {
	n := note{Member: member, Writer: writer, Serial: serial, Text: strings.Repeat(fmt.Sprint(serial%10), length)}
	n.Sum = n.sum()
	return n
}

func (n *note) sum() string {
	sum := sha256.Sum256(fmt.Appendf(nil, "%s|%d|%d|%s", n.Member, n.Writer, n.Serial, n.Text))
	return hex.EncodeToString(sum[:])
}

// hammering is members whose checkpoints are written and read from several sides at once, beside their calls.
func hammering(s *step) {
	for i := range 4 {
		s.member(fmt.Sprintf("keeper/../%d", i), pool.MemberConfig{Kind: "keeper"}, func(a *agent) {
			var writers sync.WaitGroup
			var saved atomic.Int64 // the last serial of each writer is at least this
			for w := range 2 {
				writers.Add(1)
				s.goes(func() {
					defer writers.Done()
					(&agent{Member: a.Member, s: s, id: a.id}).begin().writes(w, &saved)
				})
			}
			for !s.over() {
				s.r.read(a.Member, saved.Load() > 0)
				a.call(s.ctx, callConfig{})
			}
			writers.Wait()
		})
	}
	s.rest()
}

// writes saves one checkpoint after the other.
func (a *agent) writes(writer int, saved *atomic.Int64) {
	for serial := int64(1); !a.s.over(); serial++ {
		n := newNote(a.id, writer, serial, int(serial%97)*41)
		if err := a.SaveCheckpoint(n); err != nil {
			a.s.fail(err)
			return
		}
		saved.Add(1)
		a.s.r.kept()
		a.s.r.readSaved(a.Member, n)
		a.s.sleep(a.s.ctx, a.upTo(8*sampleEvery))
	}
}

// kept counts a checkpoint that was saved.
func (r *run) kept() {
	r.mu.Lock()
	r.checkpoints++
	r.mu.Unlock()
}

// read reads a member's checkpoint, and notes one that is not as it was saved. must says that there is one.
func (r *run) read(m *pool.Member, must bool) { r.readNote(m, must, note{Writer: -1}) }

// readSaved is read behind a save of the same writer: an older one of it is no longer there.
func (r *run) readSaved(m *pool.Member, last note) { r.readNote(m, true, last) }

func (r *run) readNote(m *pool.Member, must bool, last note) {
	var n note
	c, err := m.LoadCheckpoint(&n)
	if errors.Is(err, pool.ErrNoCheckpoint) && !must {
		return
	}
	stale := n.Writer == last.Writer && n.Serial < last.Serial
	if stale || err != nil || c.Damage != nil || n.Member != m.ID() || n.Sum != n.sum() {
		r.mu.Lock()
		r.damaged++
		r.mu.Unlock()
	}
}
