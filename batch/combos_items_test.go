package batch_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
)

// questionnaire is an input that changes between runs.
type questionnaire struct {
	luck  *rand.Rand
	items []askedItem
	gone  []askedItem      // were taken out of the input
	past  map[string][]int // questions that an item ever asked, one after the other
	times map[int]int      // how often a question was asked anew
}

type askedItem struct {
	id       string
	question int
}

func newQuestionnaire(luck *rand.Rand) questionnaire {
	return questionnaire{luck: luck, past: make(map[string][]int), times: make(map[int]int)}
}

// add appends items, which often ask what others do.
func (q *questionnaire) add(n int) {
	for range n {
		id := fmt.Sprintf("i%d", len(q.past))
		q.items = append(q.items, askedItem{id: id})
		q.ask(len(q.items) - 1)
	}
}

func (q *questionnaire) ask(i int) {
	it, question := &q.items[i], q.luck.IntN(40)
	if p := q.past[it.id]; len(p) > 0 && p[len(p)-1] == question {
		return
	}
	it.question = question
	q.past[it.id] = append(q.past[it.id], question)
	q.times[question]++
}

// change is what people do to an input between runs.
func (q *questionnaire) change() {
	luck := q.luck
	if luck.IntN(3) == 0 {
		q.add(1 + luck.IntN(10))
	}
	if luck.IntN(3) == 0 {
		for range 1 + luck.IntN(4) {
			q.ask(luck.IntN(len(q.items)))
		}
	}
	if luck.IntN(3) == 0 {
		luck.Shuffle(len(q.items), func(i, j int) { q.items[i], q.items[j] = q.items[j], q.items[i] })
	}
	if luck.IntN(4) == 0 && len(q.items) > 4 {
		i := luck.IntN(len(q.items))
		q.gone = append(q.gone, q.items[i])
		q.items = slices.Delete(q.items, i, i+1)
	}
	if luck.IntN(4) == 0 && len(q.gone) > 0 { // where it was, or not
		q.items, q.gone = slices.Insert(q.items, luck.IntN(len(q.items)), q.gone[0]), q.gone[1:]
	}
}
