package provider

import (
	"strings"
	"time"
)

// months are the names of months, whole and cut short: of English, then what differs in Spanish, French, German,
// Portuguese and Italian.
var months = byNumber(
	"jan january ene enero janv janvier januar jänner janeiro gen gennaio",
	"feb february febrero fév févr février fevrier februar fev fevereiro febbraio",
	"mar march marzo mars mär märz maerz março marco",
	"apr april abr abril avr avril aprile",
	"may mayo mai maio mag maggio",
	"jun june junio juin juni junho giu giugno",
	"jul july julio juil juillet juli julho lug luglio",
	"aug august ago agosto aoû août aou aout",
	"sep sept september septiembre septembre set setembro settembre",
	"oct october octubre octobre okt oktober out outubro ott ottobre",
	"nov november noviembre novembre novembro",
	"dec december dic diciembre déc décembre decembre dez dezember dezembro dicembre",
)

// weekdays are the names of days likewise; 1 is Sunday.
var weekdays = byNumber(
	"sun sunday dom domingo dim dimanche sonntag domenica",
	"mon monday lun lunes lundi montag seg segunda lunedì",
	"tue tues tuesday martes mardi dienstag ter terça martedì",
	"wed weds wednesday mié miércoles miercoles mer mercredi mittwoch qua quarta mercoledì",
	"thu thur thurs thursday jue jueves jeu jeudi donnerstag qui quinta giovedì",
	"fri friday vie viernes ven vendredi freitag sex sexta venerdì",
	"sat saturday sáb sábado sabado sam samedi samstag sonnabend sabato",
)

// byNumber returns the words of each text with its number, from 1 on.
func byNumber(texts ...string) map[string]int {
	all := map[string]int{}
	for i, text := range texts {
		for _, word := range strings.Fields(text) {
			all[word] = i + 1
		}
	}
	return all
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
	m, ok := months[c.name()]
	if ok {
		c.cut(".")
	}
	return time.Month(m), ok
}

// date reads "2026-04-01", "04/01/2026", "01.04.2026", "Jul 11", "Jul 5th, 2026", "26 de julio", "01-Apr-26", "7月26日".
func (c *clockReader) date() bool {
	start := c.i
	if c.isoDate() || c.slashDate() || c.dottedDate() || c.hanDate() || c.monthDay() || c.dayMonth() {
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

// dottedDate reads "17.11.2025", as it is written in German.
func (c *clockReader) dottedDate() bool {
	start := c.i
	d, ok := c.number(2)
	if ok && d >= 1 && d <= 31 && c.cut(".") {
		m, ok := c.number(2)
		if ok && m >= 1 && m <= 12 && c.cut(".") {
			if y, ok := c.number(4); ok && y >= 2000 {
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
		c.skip(" .-\u00a0º")
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

// yearAfter reads a year behind a date, if there is one. Behind a hyphen it may be of two digits: "01-Mar-26".
func (c *clockReader) yearAfter() bool {
	start := c.i
	short := c.cut("-")
	c.skip(" ,")
	digits := c.i
	y, ok := c.number(4)
	if short && c.i-digits == 2 {
		y += 2000
	}
	if ok && y >= 2000 && y < 2200 && !strings.HasPrefix(c.low[c.i:], ":") {
		c.year = y
		return true
	}
	c.i = start
	return false
}

// lateYear reads the year that stands behind the clock, as in C: "Sun Mar  1 12:30:00 2026".
func (c *clockReader) lateYear() bool {
	start := c.i
	if y, ok := c.number(4); ok && c.endsAt(c.i) && max(y-c.now.Year(), c.now.Year()-y) <= 1 {
		c.year = y
		return true
	}
	c.i = start
	return false
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

// dayName reads today, tomorrow or a weekday, and the date that may stand behind one: "Sun, 01 Mar 2026". The date says
// more, so that the weekday is then left aside.
func (c *clockReader) dayName() bool {
	switch {
	case c.word([]string{"today", "tonight", "this evening", "hoy", "heute", "hoje", "oggi", "aujourd'hui", "今天", "今日", "오늘"}):
		c.today, c.dated = true, true
		return true
	case c.word([]string{"tomorrow", "mañana", "demain", "morgen", "amanhã", "domani", "明天", "明日", "내일"}):
		c.today, c.dated, c.ahead = true, true, 1
		return true
	}
	d, ok := c.weekdayName()
	if !ok {
		return false
	}
	c.weekday, c.dated = d, true
	end := c.i
	c.skip(" ,\u00a0")
	c.word([]string{"the", "on", "le", "el", "den", "dem", "dia", "día"})
	c.skip(" ")
	if c.date() {
		c.weekday = 0
	} else {
		c.i = end
	}
	return true
}

// weekdayName reads the name of a weekday, whole or cut short, or with one character as in Chinese and Japanese.
func (c *clockReader) weekdayName() (d int, ok bool) {
	start := c.i
	if d, ok = weekdays[c.name()]; ok {
		c.cut("-feira", ".")
		return d, true
	}
	c.i = start
	if c.cut("星期", "礼拜", "周", "週") {
		d, ok = c.hanDay()
	} else if d, ok = c.hanDay(); ok {
		ok = c.cut("曜日", "曜", "요일")
	}
	if !ok {
		c.i = start
	}
	return d, ok
}

// hanDay reads the character of a weekday.
func (c *clockReader) hanDay() (d int, ok bool) {
	for i, names := range [...][]string{{"日", "天", "일"}, {"一", "月", "월"}, {"二", "火", "화"}, {"三", "水", "수"}, {"四", "木", "목"},
		{"五", "金", "금"}, {"六", "土", "토"}} {
		if c.cut(names...) {
			return i + 1, true
		}
	}
	return 0, false
}

// dayBeside moves over the weekday that stands behind its date: "March 1 (Sunday)", "3月1日（日）".
func (c *clockReader) dayBeside() bool {
	start := c.i
	bracket := c.cut("(", "（")
	_, ok := c.weekdayName()
	if !ok && bracket {
		_, ok = c.hanDay()
	}
	if ok && (!bracket || c.cut(")", "）")) {
		return true
	}
	c.i = start
	return false
}

// noons and midnights are those clocks by name.
var (
	noons     = []string{"noon", "midday", "mediodía", "midi", "mittag", "mezzogiorno"}
	midnights = []string{"midnight", "medianoche", "minuit", "mitternacht", "meia-noite", "mezzanotte"}
)

// clock reads "4pm", "8:30 p.m.", "16:00", "16:00:05.5", "à 16h30", "16 Uhr", "下午4点30分", "午後8時", noon and midnight.
func (c *clockReader) clock() bool {
	start := c.i
	half := 0 // 1 before noon, 2 after
	switch {
	case c.cut("午前", "上午", "凌晨", "早上", "오전"):
		half = 1
	case c.cut("午後", "下午", "晚上", "오후"):
		half = 2
	case c.word(noons):
		c.hour, c.clocked = 12, true
		return true
	case c.word(midnights):
		c.clocked = true
		return true
	}
	c.skip(" ")
	h, ok := c.number(2)
	minute, marked := c.minutes()
	second := time.Duration(0)
	if marked {
		second = c.seconds()
	}
	if half == 0 {
		half = c.half(h)
	}
	named := half == 0 && c.hours()
	if !ok || h > 24 || minute > 59 || half == 0 && !marked && !named {
		c.i = start
		return false
	}
	switch {
	case half == 1 && h == 12:
		h = 0
	case half == 2 && h < 12:
		h += 12
	}
	c.hour, c.minute, c.second, c.clocked = h, minute, second, true
	return true
}

// minutes reads what follows an hour: ":30", "h30", "点30分", "時". marked says that it makes a clock of the number.
func (c *clockReader) minutes() (minute int, marked bool) {
	start := c.i
	han := c.cut("時", "点", "點", "时", "시")
	if han && (c.cut("間") || c.cut("간")) { // hours, not a clock
		c.i = start
		return 0, false
	}
	french := !han && c.romance() && (c.cut("h") || c.cut(" h "))
	dot := !han && !french && c.cut(".")
	if !han && !french && !dot && !c.cut(":") {
		return 0, false
	}
	if !dot {
		c.skip(" ")
	}
	digits := c.i
	m, ok := c.number(2)
	switch {
	case ok && c.i-digits == 2 && dot && !c.followed(): // "1.25 seconds"
	case ok && c.i-digits == 2:
		c.cut("分", "분")
		return m, true
	case han, french && c.endsAt(c.i):
		return 0, true
	}
	c.i = start
	return 0, false
}

// romance reports whether the words before are of a language in which "16h30" is a clock: in English it is a duration.
func (c *clockReader) romance() bool { return c.at24 || c.month != 0 }

// followed reports whether a word stands here that makes a clock of the number before it.
func (c *clockReader) followed() bool {
	start := c.i
	ok := c.half(0) > 0 || c.hours()
	c.i = start
	return ok
}

// seconds reads the seconds of a clock, with decimals.
func (c *clockReader) seconds() time.Duration {
	start := c.i
	if !c.cut(":") {
		return 0
	}
	n, ok := c.number(2)
	if !ok || n > 60 {
		c.i = start
		return 0
	}
	d := time.Duration(n) * time.Second
	if c.i+1 < len(c.low) && c.low[c.i] == '.' && isDigit(c.low[c.i+1]) {
		c.i++
		for scale := time.Second / 10; c.i < len(c.low) && isDigit(c.low[c.i]); scale /= 10 {
			d += time.Duration(c.low[c.i]-'0') * scale
			c.i++
		}
	}
	return d
}

// half reads am and pm behind an hour. Behind one of 13 or more, am is a German word, and pm says nothing new.
func (c *clockReader) half(hour int) int {
	start := c.i
	c.skip(" \u00a0\u202f")
	for i, forms := range [...][]string{{"a.m.", "a. m.", "am", "a.m", "midnight"}, {"p.m.", "p. m.", "pm", "p.m", "noon"}} {
		for _, form := range forms {
			if strings.HasPrefix(c.low[c.i:], form) && c.endsAt(c.i+len(form)) && (i == 1 || hour <= 12) {
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
	if c.word([]string{"uhr", "o'clock"}) || c.romance() && c.word([]string{"horas", "heures", "hs"}) {
		return true
	}
	c.i = start
	return false
}
