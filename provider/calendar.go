package provider

import (
	"strings"
	"time"
	"unicode/utf8"
)

// monthOf returns the month that a name begins: of English, Spanish, French, German, Portuguese or Italian.
func monthOf(name string) (time.Month, bool) {
	switch name {
	case "jan", "ene", "gen":
		return 1, true
	case "feb", "fév", "fev":
		return 2, true
	case "mar", "mär":
		return 3, true
	case "apr", "abr", "avr":
		return 4, true
	case "may", "mai", "mag":
		return 5, true
	case "jun", "juin", "giu":
		return 6, true
	case "jul", "juil", "lug":
		return 7, true
	case "aug", "ago", "aoû", "aou":
		return 8, true
	case "sep", "set":
		return 9, true
	case "oct", "okt", "out", "ott":
		return 10, true
	case "nov":
		return 11, true
	case "dec", "dic", "déc", "dez":
		return 12, true
	}
	return 0, false
}

// weekdayOf returns the day that a name begins, in the same languages; 1 is Sunday.
func weekdayOf(name string) (int, bool) {
	switch name {
	case "sun", "dom", "dim", "sonnt":
		return 1, true
	case "mon", "lun", "mont", "seg":
		return 2, true
	case "tue", "dien", "ter":
		return 3, true
	case "wed", "mié", "mer", "mittw", "qua":
		return 4, true
	case "thu", "jue", "jeu", "donn", "qui":
		return 5, true
	case "fri", "vie", "ven", "freit", "sex":
		return 6, true
	case "sat", "sáb", "sam", "samst":
		return 7, true
	}
	return 0, false
}

// name cuts the letters off that stand here.
func (c *clockReader) name() string {
	start := c.i
	for c.i < len(c.low) && (isLetter(c.low[c.i]) || c.low[c.i] >= 0x80) {
		c.i++
	}
	return c.low[start:c.i]
}

// monthName reads the name of a month, whole or cut short.
func (c *clockReader) monthName() (time.Month, bool) {
	name := c.name()
	if len(name) > len("septiembre") {
		return 0, false
	}
	if strings.HasPrefix(c.low[c.i:], ".") {
		c.i++
	}
	for n := 5; n >= 3; n-- { // juin and juil before jui
		if len(name) >= n {
			if m, ok := monthOf(name[:n]); ok {
				return m, true
			}
		}
	}
	return 0, false
}

// date reads "2026-04-01", "Jul 11", "Jul 5th, 2026", "26 de julio", "26. Juli 2026", "7月26日".
func (c *clockReader) date() bool {
	start := c.i
	if c.isoDate() || c.slashDate() || c.hanDate() || c.monthDay() || c.dayMonth() {
		c.dated = true
		return true
	}
	c.i = start
	return false
}

func (c *clockReader) isoDate() bool {
	if len(c.low)-c.i < len("2006-01-02") {
		return false
	}
	sep := c.low[c.i+4]
	if sep != '-' && sep != '/' {
		return false
	}
	t, err := time.Parse("2006-01-02", strings.ReplaceAll(c.low[c.i:c.i+10], "/", "-"))
	if err != nil {
		return false
	}
	c.year, c.month, c.day = t.Date()
	c.i += len("2006-01-02")
	return true
}

// slashDate reads "11/17/2025": the month first, as in America, unless it can only be the day.
func (c *clockReader) slashDate() bool {
	start := c.i
	m, ok := c.number(2)
	if ok && c.cut("/") {
		d, ok := c.number(2)
		if ok && c.cut("/") {
			y, ok := c.number(4)
			if m > 12 {
				m, d = d, m
			}
			if ok && y >= 2000 && m >= 1 && m <= 12 && d >= 1 && d <= 31 {
				c.year, c.month, c.day = y, time.Month(m), d
				return true
			}
		}
	}
	c.i = start
	return false
}

func (c *clockReader) monthDay() bool {
	start := c.i
	m, ok := c.monthName()
	if ok {
		c.skip(" \u00a0")
		var day int
		if day, ok = c.number(2); ok && day >= 1 && day <= 31 && !strings.HasPrefix(c.low[c.i:], ":") {
			c.month, c.day = m, day
			c.word([]string{"st", "nd", "rd", "th"})
			c.yearAfter()
			return true
		}
	}
	c.i = start
	return false
}

func (c *clockReader) dayMonth() bool {
	start := c.i
	day, ok := c.number(2)
	if ok && day >= 1 && day <= 31 {
		c.word([]string{"st", "nd", "rd", "th"})
		c.skip(" .\u00a0º")
		c.word([]string{"de", "of", "do"})
		c.skip(" ")
		if m, ok := c.monthName(); ok {
			c.month, c.day = m, day
			c.skip(" ")
			c.word([]string{"de"})
			c.yearAfter()
			return true
		}
	}
	c.i = start
	return false
}

// yearAfter reads a year behind a date, if there is one.
func (c *clockReader) yearAfter() {
	start := c.i
	c.skip(" ,")
	if y, ok := c.number(4); ok && y >= 2000 && y < 2200 && !strings.HasPrefix(c.low[c.i:], ":") {
		c.year = y
		return
	}
	c.i = start
}

// hanDate reads a date of Chinese, Japanese and Korean: "2026年7月26日".
func (c *clockReader) hanDate() bool {
	start := c.i
	n, ok := c.number(4)
	if ok && c.cut("年", "년") {
		c.year = n
		c.skip(" ")
		n, ok = c.number(2)
	}
	if ok && n >= 1 && n <= 12 && c.cut("月", "월") {
		c.skip(" ")
		if d, ok := c.number(2); ok && d >= 1 && d <= 31 {
			c.cut("日", "号", "일")
			c.month, c.day = time.Month(n), d
			return true
		}
	}
	c.i, c.year = start, 0
	return false
}

// cut moves over the first of the texts that stands here.
func (c *clockReader) cut(texts ...string) bool {
	for _, t := range texts {
		if strings.HasPrefix(c.low[c.i:], t) {
			c.i += len(t)
			return true
		}
	}
	return false
}

// dayName reads a weekday, today or tomorrow.
func (c *clockReader) dayName() bool {
	start := c.i
	switch {
	case c.word([]string{"today", "tonight", "hoy", "heute", "hoje", "oggi", "今天", "今日"}):
		c.today, c.dated = true, true
		return true
	case c.word([]string{"tomorrow", "mañana", "demain", "morgen", "amanhã", "domani", "明天", "明日", "내일"}):
		c.today, c.dated, c.ahead = true, true, 1
		return true
	}
	name := c.name()
	for n := min(len(name), 6); n >= 3 && len(name) <= len("donnerstag"); n-- {
		if d, ok := weekdayOf(name[:n]); ok {
			c.weekday, c.dated = d, true
			return true
		}
	}
	c.i = start
	return false
}

// clock reads "4pm", "8:30 p.m.", "16:00", "16:00:05", "16h30", "16 Uhr", "下午4点30分", "午後8時", noon and midnight.
func (c *clockReader) clock() bool {
	start := c.i
	half := 0 // 1 before noon, 2 after
	switch {
	case c.cut("午前", "上午", "凌晨", "早上", "오전"):
		half = 1
	case c.cut("午後", "下午", "晚上", "오후"):
		half = 2
	case c.word([]string{"noon"}):
		c.hour, c.clocked = 12, true
		return true
	case c.word([]string{"midnight"}):
		c.clocked = true
		return true
	}
	c.skip(" ")
	h, ok := c.number(2)
	minute, marked := c.minutes()
	if c.cut(":") { // seconds
		c.number(2)
		if c.cut(".") {
			c.number(9)
		}
	}
	if half == 0 {
		half = c.half()
	}
	named := c.hours()
	if !ok || h > 24 || minute > 59 || half > 0 && h > 12 || half == 0 && !marked && !named {
		c.i = start
		return false
	}
	switch {
	case half == 1 && h == 12:
		h = 0
	case half == 2 && h < 12:
		h += 12
	}
	c.hour, c.minute, c.clocked = h, minute, true
	return true
}

// minutes reads what follows an hour: ":30", "h30", "点30分", "時". marked says that it makes a clock of the number.
func (c *clockReader) minutes() (minute int, marked bool) {
	start := c.i
	han := c.cut("時", "点", "點", "时", "시")
	french := !han && (c.cut("h") || c.cut(" h "))
	if !han && !french && !c.cut(":") && !(c.cut(".") && c.i < len(c.low) && isDigit(c.low[c.i])) {
		c.i = start
		return 0, false
	}
	c.skip(" ")
	digits := c.i
	m, ok := c.number(2)
	switch {
	case ok && c.i-digits == 2:
		c.cut("分", "분")
		return m, true
	case han, french && c.endsAt(c.i):
		return 0, true
	}
	c.i = start
	return 0, false
}

// half reads am and pm.
func (c *clockReader) half() int {
	start := c.i
	c.skip(" \u00a0\u202f")
	for i, forms := range [...][]string{{"a.m.", "a. m.", "am", "a.m"}, {"p.m.", "p. m.", "pm", "p.m"}} {
		for _, form := range forms {
			if strings.HasPrefix(c.low[c.i:], form) && c.endsAt(c.i+len(form)) {
				c.i += len(form)
				return i + 1
			}
		}
	}
	c.i = start
	return 0
}

// hours reads the word that makes an hour of a number.
func (c *clockReader) hours() bool {
	start := c.i
	c.skip(" ")
	if c.word([]string{"uhr", "horas", "heures", "o'clock", "hs"}) {
		return true
	}
	c.i = start
	return false
}

// zone reads the zone that follows a clock, in brackets or bare; without one it is now's own location.
func (c *clockReader) zone() *time.Location {
	c.skip(" ,")
	if c.cut("(", "（") {
		if end := strings.IndexAny(c.s[c.i:], ")）"); end >= 0 {
			if at, ok := zone(c.s[c.i : c.i+end]); ok {
				return at
			}
		}
		c.skip(" ")
	}
	end := c.i
	for end < len(c.s) && (isLetter(c.s[end]) || isDigit(c.s[end]) || strings.IndexByte("/_+-:", c.s[end]) >= 0) {
		end++
	}
	name := strings.TrimRight(c.s[c.i:end], ":-/")
	if at, ok := zone(name); ok {
		return at
	}
	if strings.HasPrefix(c.low[end:], " time") {
		if at, ok := zone(c.low[c.i:end] + " time"); ok {
			return at
		}
	}
	if r, _ := utf8.DecodeRuneInString(c.s[c.i:]); r == '北' {
		return time.FixedZone("", 8*3600)
	}
	return c.now.Location()
}
