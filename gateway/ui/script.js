"use strict";
const state = document.getElementById("state");
const say = text => { if (state.textContent !== text) state.textContent = text; };
const source = new EventSource("/ui/events");
source.onmessage = event => {
	const parts = JSON.parse(event.data);
	for (const id in parts) {
		if (id === "state") say(parts.state);
		else document.getElementById(id).innerHTML = parts[id]; // escaped where it was made
	}
};
source.onerror = () => say("The gateway does not answer: the numbers are old.");
