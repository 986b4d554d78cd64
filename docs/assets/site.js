// Browsers start no worker for a page that is read from a disk. Search then runs in a hidden frame.
// Like a worker, it answers later, and is handed copies.
if (location.protocol === "file:") {
  window.Worker = class {
    constructor(address) {
      this.waiting = [];
      this.frame = document.createElement("iframe");
      this.frame.hidden = true;
      document.body.append(this.frame);
      this.inside = this.frame.contentWindow;
      this.inside.postMessage = (data) => this.later(this, data);
      const script = this.inside.document.createElement("script");
      script.src = new URL(address, location.href).href;
      script.onload = () => {
        this.waiting.forEach((data) => this.later(this.inside, data));
        this.waiting = null;
      };
      script.onerror = (event) => this.onerror?.(event);
      this.inside.document.body.append(script);
    }
    later(receiver, data) {
      const copy = structuredClone(data);
      setTimeout(() => receiver.onmessage?.({ data: copy }));
    }
    postMessage(data) {
      if (this.waiting) this.waiting.push(structuredClone(data));
      else this.later(this.inside, data);
    }
    terminate() {
      this.frame.remove();
    }
  };
}

// What scrolls sideways can be reached by keys.
addEventListener("load", () => {
  setTimeout(() => {
    for (const part of document.querySelectorAll(".md-typeset__scrollwrap, pre > code, .wide")) {
      if (part.scrollWidth > part.clientWidth) part.tabIndex = 0;
    }
  }, 50);
});
