/** Styles that a library makes at run time, for a page whose policy forbids `<style>`. */

/** Stands in for a `<style>` element: its text becomes a sheet that the document adopts until it is removed. */
export function styleElement(): HTMLElement {
  const sheet = new CSSStyleSheet();
  document.adoptedStyleSheets.push(sheet);
  const element = document.createElement("span");
  element.hidden = true;
  Object.defineProperty(element, "textContent", { set: (text: string) => sheet.replaceSync(text) });
  element.remove = (): void => {
    document.adoptedStyleSheets = document.adoptedStyleSheets.filter((each) => each !== sheet);
    HTMLElement.prototype.remove.call(element);
  };
  return element;
}
