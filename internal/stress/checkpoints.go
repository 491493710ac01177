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

// note is the checkpoint of a member.
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

// hammering is members whose checkpoints are written and read by several goroutines, beside their calls.
func hammering(s *step) {
	for i := range 4 {
		s.member(fmt.Sprintf("keeper/../%d", i), "keeper", func(a *agent) {
			var all sync.WaitGroup
			var saved saves
			for w := range saved {
				all.Add(1)
				s.goes(func() {
					defer all.Done()
					(&agent{Member: a.Member, s: s, id: a.id}).begin().writes(w, &saved)
				})
			}
			for !s.over() {
				s.r.read(a.Member, saved.oldest())
				a.call(s.ctx, nil)
			}
			all.Wait()
		})
	}
	s.rest()
}

// serials holds one serial of each writer of a member; 0 is none.
type serials [2]int64

// saves are the newest serials that were saved.
type saves [len(serials{})]atomic.Int64

// oldest returns the serials below which no checkpoint may be read.
func (s *saves) oldest() (o serials) {
	for w := range s {
		o[w] = s[w].Load()
	}
	return o
}

// minSaves is the number of checkpoints that each writer saves, also on a disk so slow that the time of the step ends first.
const minSaves = 10

// writes saves one checkpoint after the other, and reads each.
func (a *agent) writes(writer int, saved *saves) {
	for serial := int64(1); !a.s.over() || serial <= minSaves && a.s.ctx.Err() == nil; serial++ {
		oldest := saved.oldest()
		for w := range oldest { // this save replaces those
			oldest[w]++
		}
		oldest[writer] = serial
		if err := a.SaveCheckpoint(newNote(a.id, writer, serial, int(serial%97)*41)); err != nil {
			a.s.fail(err)
			return
		}
		saved[writer].Store(serial)
		a.s.r.count("checkpoints")
		a.s.r.read(a.Member, oldest)
		a.s.sleep(a.upTo(8 * sampleEvery))
	}
}

// read reads the checkpoint of a member, and counts one that is damaged, or that a later one has replaced.
func (r *run) read(m *pool.Member, oldest serials) {
	var n note
	c, err := m.LoadCheckpoint(&n)
	if errors.Is(err, pool.ErrNoCheckpoint) && oldest == (serials{}) {
		return
	}
	if err != nil || c.Damage != nil || n.Member != m.ID() || n.Sum != n.sum() || n.Serial < oldest[n.Writer] {
		r.count("checkpoints_damaged")
	}
}
