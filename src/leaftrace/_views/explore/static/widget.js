// The explorer in a notebook: the same modules in a frame of their own, whose questions go through the kernel.
const FRAME = "allow-scripts allow-downloads";

function render({ model, el }) {
  const frame = document.createElement("iframe");
  frame.setAttribute("sandbox", FRAME);
  frame.title = "leaftrace explore";
  frame.style.cssText = `width: 100%; height: ${model.get("height")}px; border: 1px solid #8888; border-radius: 6px;`;
  const ask = (event) => { if (event.source === frame.contentWindow) model.send(event.data); };
  const answer = (message) => frame.contentWindow?.postMessage(message, "*");
  addEventListener("message", ask);
  model.on("msg:custom", answer);
  frame.srcdoc = model.get("page");
  el.append(frame);
  return () => {
    removeEventListener("message", ask);
    model.off("msg:custom", answer);
  };
}

export default { render };
