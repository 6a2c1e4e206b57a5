/*! Contains Preact, https://preactjs.com, xterm.js, https://xtermjs.org, CodeMirror, https://codemirror.net, and uPlot, https://github.com/leeoniya/uPlot, MIT License, and noVNC, https://github.com/novnc/noVNC, MPL-2.0, see *-license.txt */
function u(n,r=Math.random){let t=Math.min(250*2**Math.min(n,10),8e3);return Math.round(t*(.75+r()/4))}export{u as a};
